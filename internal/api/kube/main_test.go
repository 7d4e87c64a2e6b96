package kube

import (
	"os"
	"testing"

	"podcount/lab/testkit"
)

func TestMain(m *testing.M) {
	testkit.AllowRandomInVirtualTime()
	os.Exit(testkit.RunTests(m))
}
