package events

import (
	"os"
	"testing"

	"podcount/internal/fakekube"
)

func TestMain(m *testing.M) { os.Exit(fakekube.RunTests(m)) }
