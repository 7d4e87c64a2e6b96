package logging

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"podcount/internal/testkit"
)

func TestLostLinesOfStdoutAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Buffer{}
		isBroken := true
		out := NewOutputs(testkit.WriterFunc(func(b []byte) (int, error) {
			if isBroken {
				return 0, errors.New("broken pipe")
			}
			return len(b), nil
		}), log, OutputsOptions{})
		fmt.Fprintln(out.Stdout, "one")
		synctest.Wait()
		isBroken = false
		fmt.Fprintln(out.Stdout, "two")
		out.Close(t.Context())
		testkit.WantText(t, log.String(), `msg="printed lines were dropped, because stdout was not read, or failed" lines=1`)
	})
}
