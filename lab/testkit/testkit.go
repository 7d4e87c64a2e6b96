// Package testkit holds what the tests of every package share: short checks with readable failures, and virtual time.
// Of podcount it imports package diff alone, which imports nothing, so every package can use it.
package testkit

import (
	"cmp"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// WantText fails the test for each wanted text that does not occur in text.
func WantText(t testing.TB, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

// WantNumber fails the test unless got is want. The failure begins with what, which names the number.
func WantNumber(t testing.TB, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %d, want %d", what, got, want)
	}
}

// WantBetween fails the test unless got is at least low and at most high. It works for numbers and for durations.
func WantBetween[T cmp.Ordered](t testing.TB, what string, got, low, high T) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: got %v, want %v to %v", what, got, low, high)
	}
}

// WantError fails the test unless err says want somewhere, or unless there is no error if want is "".
func WantError(t testing.TB, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: got the error %q, want none", what, err)
	case want != "" && err == nil:
		t.Errorf("%s: got no error, want %q", what, want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("%s: got the error %q, want %q", what, err, want)
	}
}

// WantEqual fails the test unless got and want are deeply equal. The failure begins with what, which names the value.
// It shows a diff if either value needs several lines: a text is compared line by line, a list element by element, a
// map key by key, and a struct field by field.
func WantEqual[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	gotLines := linesOf(reflect.ValueOf(got))
	wantLines := linesOf(reflect.ValueOf(want))
	isShort := len(gotLines) <= 1 && len(wantLines) <= 1
	if isShort || slices.Equal(gotLines, wantLines) {
		t.Errorf("%s: got %#v, want %#v", what, got, want)
		return
	}
	t.Errorf("%s: - is wanted and missing, + is unwanted:\n%s", what, difference(gotLines, wantLines))
}

// Pass lets d of virtual time pass, and then waits until every other goroutine is blocked. It works only within a
// bubble of testing/synctest.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Into returns a function that decodes JSON into a value, for kube.Client.Send.
func Into(value any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(r).Decode(value) }
}
