package fakekube

// TB is what the fake needs of a test: a *testing.T, *testing.B or *testing.F has it. Programs that are no tests link
// the package, too, and shall not link the package testing with it.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
}
