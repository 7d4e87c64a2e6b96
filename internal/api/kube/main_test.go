package kube

import (
	"os"
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func TestMain(m *testing.M) {
	testkit.AllowRandomInVirtualTime()
	os.Exit(fakekube.RunTests(m))
}
