package fakekube

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(ExecPluginDir); dir != "" {
		os.Exit(RunExecPlugin(dir))
	}
	os.Exit(RunTests(m))
}
