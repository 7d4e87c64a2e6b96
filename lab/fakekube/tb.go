package fakekube

// TB is the part of testing.TB that the fake uses. It exists because programs that link this package should not link
// the package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
}
