package events

import (
	"os"
	"testing"

	"podcount/lab/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.RunTests(m)) }
