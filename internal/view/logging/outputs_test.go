package logging

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"podcount/lab/testkit"
)

func TestLostLinesOfStdoutAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Buffer{}
		isBroken := true
		stdout := testkit.WriterFunc(func(b []byte) (int, error) {
			if isBroken {
				return 0, errors.New("broken pipe")
			}
			return len(b), nil
		})
		out := NewOutputs(stdout, log, OutputsOptions{})
		fmt.Fprintln(out.Stdout, "one")
		synctest.Wait()
		isBroken = false
		fmt.Fprintln(out.Stdout, "two")
		out.Close(t.Context())
		want := `msg="printed lines were dropped, because stdout was not read, or failed" lines=1`
		testkit.WantText(t, log.String(), want)
	})
}
