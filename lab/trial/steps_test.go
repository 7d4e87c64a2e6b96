package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// once counts and writes one time, and ends. It passes the rows of Steps that are for such a program. Its fields are
// mistakes that it can make.
type once struct {
	one        bool // counts the pods of one namespace
	believes   bool // takes any answer for a list
	silent     bool // prints nothing
	whole      bool // writes whole nodes
	hasNoUID   bool
	stops      bool // at the first node that cannot be written
	ignores    bool // refusals of a write
	saysLittle bool // of refusals
}

func (o once) run(ctx context.Context, c Cluster) error {
	path := "/api/v1/pods"
	if o.one {
		path = "/api/v1/namespaces/default/pods"
	}
	var pods items
	if err := o.get(ctx, c, path, &pods); err != nil {
		return err
	}
	if !o.silent {
		fmt.Fprintln(c.Output, len(pods.Items), "pods")
	}
	var nodes struct{ Items []map[string]any }
	if err := o.get(ctx, c, "/api/v1/nodes?labelSelector="+controlPlane, &nodes); err != nil {
		return err
	}
	var problems error
	for _, node := range nodes.Items {
		err := o.write(ctx, c, node, strconv.Itoa(len(pods.Items)))
		if o.stops && err != nil {
			return err
		}
		problems = errors.Join(problems, err)
	}
	return problems
}

func (o once) write(ctx context.Context, c Cluster, node map[string]any, number string) error {
	metadata := node["metadata"].(map[string]any)
	labels := map[string]any{c.Label: number}
	patch := map[string]any{"labels": labels, "uid": metadata["uid"]}
	if o.hasNoUID {
		delete(patch, "uid")
	}
	method, body := "PATCH", map[string]any{"metadata": patch}
	if o.whole {
		metadata["labels"].(map[string]any)[c.Label] = number
		delete(metadata, "resourceVersion")
		method, body = "PUT", node
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	code, answer, err := request(ctx, c, method, "/api/v1/nodes/"+metadata["name"].(string), string(text))
	isGone := code == 404 && !o.stops || code == 422 && strings.Contains(string(answer), "uid")
	switch {
	case err != nil || code == 200 || isGone || o.ignores:
		return err
	case o.saysLittle:
		return errors.New("a write was refused")
	}
	return errors.New(string(answer))
}

func (o once) get(ctx context.Context, c Cluster, path string, into any) error {
	code, answer, err := request(ctx, c, "GET", path, "")
	if err == nil && code != 200 && !o.believes {
		err = fmt.Errorf("GET %s: %d", path, code)
	}
	return errors.Join(err, json.Unmarshal(answer, into))
}

func TestProgramThatEndsPassesItsSteps(t *testing.T) {
	for _, row := range []string{"prints", "no answer is no number", "labels", "others' labels stay", "a node is gone",
		"another node", "says why not"} {
		for name, isProxied := range map[string]bool{"": false, ", through a proxy": true} {
			t.Run(row+name, func(t *testing.T) {
				if r := play(t, Program{Run: once{}.run, IsProxied: isProxied}, row); r.Verdict != Right {
					t.Error(r.Story())
				}
			})
		}
	}
}

func TestEachMistakeFailsAStep(t *testing.T) {
	for _, row := range []struct {
		mistake string
		run     func(context.Context, Cluster) error
		row     string
		verdict Verdict
		detail  string // a part of it
	}{
		{"it counts one namespace", once{one: true}.run, "prints", Unlike, "there are 7 pods"},
		{"it prints the whole list", func(ctx context.Context, c Cluster) error {
			_, text, err := request(ctx, c, "GET", "/api/v1/pods", "")
			fmt.Fprintln(c.Output, string(text))
			return err
		}, "prints", Unlike, "there are 7 pods"},
		{"it prints nothing", once{silent: true}.run, "prints", Unlike, `it has printed ""`},
		{"it does not end", poller{}.run, "prints", NotStopped, "20s"},
		{"it counts a refusal", once{believes: true}.run, "no answer is no number", Unlike, "could not do its work"},
		{"it writes whole nodes", once{whole: true}.run, "others' labels stay", Unlike, "someone else has written"},
		{"it writes whatever has the name", once{hasNoUID: true}.run, "another node", Unlike, "meant for the node before"},
		{"it stops at a node that is gone", once{stops: true}.run, "a node is gone", Unlike, "the exit code is 1"},
		{"it hides a refusal", once{ignores: true}.run, "says why not", Unlike, "the exit code is 0"},
		{"it does not say why", once{saysLittle: true}.run, "says why not", Unlike, "what the server has said"},
		{"it does not count by node", poller{}.run, "own pods", Wrong, "it has 3 pods"},
		{"it lists everything again", poller{}.run, "resumes", Unlike, "its versions were still good"},
		{"it does not wait as asked", poller{}.run, "asked to wait", Unlike, "Retry-After: 10"},
		{"it asks as often as before", poller{hurries: true}.run, "patient", HotLoop, "last 30 s of an outage"},
		{"it leaves the label where it was", poller{}.run, "demoted", Wrong, "is no control-plane node"},
		{"it writes to whatever has the name", poller{}.run, "replaced while it writes", Unlike, "the node before it"},
		{"it takes an answer for a list", poller{believesAll: true}.run, "no list", FalseNumber, `got the label "0"`},
		{"it keeps the Lease", poller{}.run, "hands over", Unlike, "nobody else leads"},
		{"it does not elect", poller{ignoresLease: true}.run, "cannot renew", NoLease, "nobody holds the Lease"},
		{"it compares clocks", poller{}.run, "another clock", Intruded, "somebody-else"},
		{"it posts no Event", poller{}.run, "an Event", Wrong, "there is no Event"},
		{"it leaves a write alone", poller{}.run, "stopped while it writes", Unlike, "of its requests were answered"},
	} {
		t.Run(row.mistake, func(t *testing.T) {
			r := play(t, Program{Run: row.run, Elects: true}, row.row)
			if r.Verdict != row.verdict || !strings.Contains(r.Detail, row.detail) {
				t.Errorf("the verdict is %q, want %q with %q\n%s", r.Verdict, row.verdict, row.detail, r.Story())
			}
		})
	}
}

func TestRowEndsAlthoughTheProgramIsStillConnecting(t *testing.T) {
	r := play(t, Program{Run: func(ctx context.Context, c Cluster) error {
		<-ctx.Done()
		go func() {
			late, cancel := context.WithTimeout(context.Background(), virtualDelay/2)
			defer cancel()
			request(late, c, "GET", "/api/v1/pods", "")
		}()
		<-time.After(virtualDelay / 4)
		return nil
	}}, "prints")
	if r.Verdict != NotStopped {
		t.Error(r.Story())
	}
}
