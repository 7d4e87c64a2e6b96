package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// poller is a controller that lists pods and nodes every two seconds, and writes what is wrong. It passes all rows. Its
// fields are mistakes that it can make.
type poller struct {
	waitsForEver  bool // for an answer
	exits         bool // after an error
	hurries       bool // after an error
	alwaysWrites  bool // also what is right already
	believesHalf  bool // takes the beginning of a list for the list
	believesAll   bool // takes any answer for a list
	writesInTurn  bool // waits for each write before the next one
	ignoresStop   bool
	writesWorkers bool // labels nodes that are no control-plane nodes
	writesOnce    bool // only the first number
	ignoresLease  bool
}

func (p poller) run(ctx context.Context, c Cluster) error {
	for {
		err := p.look(ctx, c)
		switch {
		case ctx.Err() != nil && !p.ignoresStop:
			return nil
		case ctx.Err() != nil:
			<-time.After(time.Minute)
			return nil
		case err != nil && p.exits:
			return err
		case err != nil && p.hurries:
			pause(ctx, 10*time.Millisecond)
		default:
			pause(ctx, 2*time.Second)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// items is a list of objects.
type items struct {
	Kind  string
	Items []item
}

type item struct {
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		HolderIdentity string
		RenewTime      time.Time
	}
}

func (p poller) look(ctx context.Context, c Cluster) error {
	if c.Lease != "" && !p.ignoresLease {
		if err := p.lead(ctx, c); err != nil {
			return err
		}
	}
	var pods, nodes items
	if err := p.get(ctx, c, "/api/v1/pods", &pods); err != nil {
		return err
	}
	if err := p.get(ctx, c, "/api/v1/nodes", &nodes); err != nil {
		return err
	}
	var writes sync.WaitGroup
	var mu sync.Mutex // guards problem
	var problem error
	for _, node := range nodes.Items {
		_, isControlPlane := node.Metadata.Labels[controlPlane]
		have, isLabelled := node.Metadata.Labels[c.Label]
		want := strconv.Itoa(len(pods.Items))
		isRight := have == want || !isControlPlane && !p.writesWorkers || isLabelled && p.writesOnce
		if isRight && !p.alwaysWrites || !isControlPlane && !p.writesWorkers {
			continue
		}
		writes.Go(func() {
			err := p.send(ctx, c, "PATCH", "/api/v1/nodes/"+node.Metadata.Name,
				`{"metadata":{"labels":{"`+c.Label+`":"`+want+`"}}}`, nil)
			mu.Lock()
			defer mu.Unlock()
			problem = errors.Join(problem, err)
		})
		if p.writesInTurn {
			writes.Wait()
		}
	}
	writes.Wait()
	return problem
}

// lead returns an error unless it holds the Lease, and renews it.
func (p poller) lead(ctx context.Context, c Cluster) error {
	namespace, name, _ := strings.Cut(c.Lease, "/")
	path := "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	var lease item
	err := p.get(ctx, c, path+"/"+name, &lease)
	body := fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"holderIdentity":%q,"renewTime":%q}}`,
		name, c.Identity, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	switch {
	case err != nil:
		return p.send(ctx, c, "POST", path, body, nil)
	case lease.Spec.HolderIdentity != c.Identity && time.Since(lease.Spec.RenewTime) < leaseSeconds*time.Second:
		return errors.New("someone else leads")
	}
	return p.send(ctx, c, "PATCH", path+"/"+name, body, nil)
}

func (p poller) get(ctx context.Context, c Cluster, path string, into any) error {
	return p.send(ctx, c, "GET", path, "", into)
}

// send sends a request, and decodes the answer into a value unless it is nil.
func (p poller) send(ctx context.Context, c Cluster, method, path, body string, into any) error {
	if !p.waitsForEver {
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		ctx = limited
	}
	code, text, err := request(ctx, c, method, path, body)
	if code > 299 && !p.believesAll {
		return fmt.Errorf("%d %s", code, http.StatusText(code))
	}
	if code != 0 && p.believesHalf && into != nil {
		text = completed(text)
		err = nil
	}
	if err != nil || into == nil {
		return err
	}
	err = json.Unmarshal(text, into)
	if p.believesAll {
		return nil
	}
	if list, isList := into.(*items); isList && err == nil && !strings.HasSuffix(list.Kind, "List") {
		return fmt.Errorf("%s is no list", list.Kind)
	}
	return err
}

// request sends a request, and returns the code and the text of the answer. Both may be there although the text broke
// off. A PATCH is a merge patch.
func request(ctx context.Context, c Cluster, method, path, body string) (code int, text []byte, err error) {
	q, err := http.NewRequestWithContext(ctx, method, c.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		q.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := c.Transport.RoundTrip(q)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// completed ends a list that broke off after the last whole object.
func completed(text []byte) []byte {
	if json.Valid(text) {
		return text
	}
	for end := len(text); end > 0; end-- {
		whole := append(append([]byte{}, text[:end]...), "]}"...)
		if text[end-1] == '}' && json.Valid(whole) {
			return whole
		}
	}
	return []byte(`{"kind":"List"}`)
}
