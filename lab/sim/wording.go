package sim

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
)

// CheckWording checks that the simulation fails if the wording of the program's log changes. It simulates the program
// several times, each time with one word of its log replaced. Each time, a rule must be broken. o.Seed is the first
// seed that is tried.
func CheckWording(t *testing.T, o Options) {
	for _, row := range []struct{ name, from, to, want string }{
		{"no JSON", `{"time"`, `time`, "logs a line that cannot be parsed"},
		{"no list", `"msg":"listed"`, `"msg":"it lists"`, "that it has listed pods"},
		{"no audit", `"msg":"audited"`, `"msg":"it audits"`, "has not logged the audit"},
		{"no drift", `"drift":`, `"differences":`, "logs an audit that lacks drift"},
		{"no watch", `"msg":"watching"`, `"msg":"it watches"`, "that it watches pods"},
		{"no discovery", `"msg":"the resource is installed"`, `"msg":"found"`, "that counts is installed"},
		{"other version", `watching","kind":"Pod","rv":"`, `watching","kind":"Pod","rv":"1`, "it has not requested"},
		{"no version", `"rv":`, `"version":`, "logs a line that lacks rv"},
		{"no number as the version", `"rv":"`, `"rv":"v`, "logs a line whose rv is no version"},
		{"other kind", `"kind":"Pod"`, `"kind":"pods"`, "logs a line without a kind that it watches"},
		{"no stale", `"stale":`, `"old":`, "logs an event that lacks stale"},
		{"other type", `"msg":"MODIFIED `, `"msg":"CHANGED `, "logs an event of an unknown type"},
		{"no key", `"msg":"MODIFIED Node `, `"msg":"MODIFIED Node", "key":"`, "logs an event without a kind or a key"},
	} {
		t.Run(row.name, func(t *testing.T) {
			changed := o
			changed.Program = reworded(o.Program, strings.NewReplacer(row.from, row.to))
			const seeds = 10 // not every seed has an audit
			for range seeds {
				broken := strings.Join(Simulate(t, changed).Broken, "\n")
				if strings.Contains(broken, row.want) {
					return
				}
				changed.Seed++
			}
			t.Errorf("within %d seeds, no broken rule contains %q", seeds, row.want)
		})
	}
}

// reworded returns the program with some words of its log replaced.
func reworded(program Program, words *strings.Replacer) Program {
	return func(
		ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
		dial func(ctx context.Context, network, addr string) (net.Conn, error),
	) error {
		return program(ctx, args, getenv, stdout, &rewriter{stderr, words}, dial)
	}
}

// rewriter replaces words in what is written.
type rewriter struct {
	to    io.Writer
	words *strings.Replacer
}

func (w *rewriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(w.to, w.words.Replace(string(text)))
	return len(text), err
}
