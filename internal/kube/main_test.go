package kube

import (
	"os"
	"testing"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.AllowRandomInVirtualTime()
	os.Exit(fakekube.RunTests(m))
}
