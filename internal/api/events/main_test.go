package events

import (
	"os"
	"testing"

	"podcount/lab/fakekube"
)

func TestMain(m *testing.M) { os.Exit(fakekube.RunTests(m)) }
