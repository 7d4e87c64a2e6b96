package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// shortPauses are those of tests.
var shortPauses = pauses{
	start:  30 * time.Second,
	away:   time.Second,
	slow:   3 * time.Second,
	wave:   100 * time.Millisecond,
	wrong:  500 * time.Millisecond,
	status: 500 * time.Millisecond,
	giveUp: 30 * time.Second,
}

// testGround is a playground with a real podcount, and a page that looks at it.
type testGround struct {
	*playground
	t      *testing.T
	dir    string
	page   string // the address of the page, without the slash at its end
	out    *testkit.Buffer
	stops  chan os.Signal
	ended  chan error
	client *http.Client
}

// startGround starts a playground, and waits until podcount has written the label and watches each kind. The test must
// end it.
func startGround(t *testing.T, podcountFlags ...string) *testGround {
	t.Helper()
	program := podcountProgram(t)
	g := &testGround{
		t:      t,
		dir:    t.TempDir(),
		out:    &testkit.Buffer{},
		stops:  make(chan os.Signal, 1),
		ended:  make(chan error, 1),
		client: &http.Client{Transport: &http.Transport{}},
	}
	quick := append([]string{"-interval", "200ms", "-log-format", "text"}, podcountFlags...)
	p := newPlayground(program, quick, shortPauses, g.out, g.out)
	p.checkout = "../.."
	g.playground = p
	go func() {
		err := p.run(g.dir, g.stops, nil)
		p.close()
		g.ended <- err
	}()
	t.Cleanup(g.end)
	p.use(func(c *cluster) { c.measurements++ }) // so that web is not scaled by itself
	g.wantSoon("the label is right", func() bool { return p.label() == p.truth() })
	for _, resource := range []string{"pods", "nodes", "counts"} {
		g.wantSoon(resource+" are watched", func() bool { return g.isWatched(resource) })
	}
	g.wantSoon("the introduction", func() bool { return strings.Contains(g.out.String(), "stops everything") })
	_, after, _ := strings.Cut(g.out.String(), "See what podcount does: ")
	address, _, _ := strings.Cut(after, "/\n")
	g.page = address
	return g
}

// isWatched reports whether podcount has listed a resource, and has begun to watch it.
func (g *testGround) isWatched(resource string) bool {
	watches := fixture.Requests(g.cluster.fake, func(q fakekube.Request) bool {
		return g.isPodcount(q) && q.Verb == "watch" && q.Resource == resource
	})
	return len(watches) > 0
}

// wantSoon waits until a condition holds.
func (g *testGround) wantSoon(what string, condition func() bool) {
	g.t.Helper()
	isMet, err := g.await(shortPauses.giveUp, condition)
	if err != nil || !isMet {
		g.t.Fatalf("not within %v: %s (%v)\n%s", shortPauses.giveUp, what, err, g.out.String())
	}
}

// end presses Ctrl-C, and waits until all has ended.
func (g *testGround) end() {
	g.client.CloseIdleConnections()
	g.stops <- os.Interrupt
	if err := <-g.ended; err != nil {
		g.t.Errorf("the playground has ended with %v, want no error\n%s", err, g.out.String())
	}
	if files, _ := filepath.Glob(filepath.Join(g.dir, "playground*")); len(files) > 0 {
		g.t.Errorf("these files are left: %q", files)
	}
	for _, r := range g.replicas.list() {
		if g.replicas.isRunning(r) {
			g.t.Errorf("%s still runs", r.name)
		}
	}
}

// do sends a request to the page. header has the name and the value of one header, if it is not empty.
func (g *testGround) do(method, path string, header ...string) *http.Response {
	g.t.Helper()
	request, err := http.NewRequest(method, g.page+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	if len(header) > 0 && header[0] == "Host" {
		request.Host = header[1]
	} else if len(header) > 0 {
		request.Header.Set(header[0], header[1])
	}
	answer, err := g.client.Do(request)
	if err != nil {
		g.t.Fatal(err)
	}
	return answer
}

// wantAnswer sends a request, and checks the answer.
func (g *testGround) wantAnswer(code int, text string, method, path string, header ...string) {
	g.t.Helper()
	answer := g.do(method, path, header...)
	body := read(g.t, answer.Body)
	if answer.StatusCode != code || !strings.Contains(body, text) {
		g.t.Errorf("%s %s with %q gets %d %q, want %d %q", method, path, header, answer.StatusCode, body, code, text)
	}
}

// identity returns the identity of the replica that the page shows.
func (g *testGround) identity() string {
	g.t.Helper()
	var state struct{ Lease struct{ Identity string } }
	text := read(g.t, g.do("GET", "/debug/state").Body)
	if err := json.Unmarshal([]byte(text), &state); err != nil || state.Lease.Identity == "" {
		g.t.Fatalf("there is no identity (%v) in %s", err, text)
	}
	return state.Lease.Identity
}

// reports opens the stream of reports.
func (g *testGround) reports() *reportStream {
	answer := g.do("GET", "/playground/events")
	s := &reportStream{ground: g, body: answer.Body, lines: bufio.NewScanner(answer.Body)}
	g.t.Cleanup(func() { answer.Body.Close() })
	return s
}

// reportStream reads reports as a page does.
type reportStream struct {
	ground *testGround
	body   io.Closer
	lines  *bufio.Scanner

	hasNewButtons bool // the texts on the buttons have changed
}

// press presses a button, and returns its last report, which must be that of a success.
func (s *reportStream) press(name string) string {
	s.ground.t.Helper()
	s.ground.wantAnswer(http.StatusOK, `{"run":`, "POST", "/playground/"+name)
	got := s.last(name)
	s.ground.t.Logf("%s: %s", name, got.Text)
	if got.State != isDone {
		s.ground.t.Errorf("%s ends with the report %+v", name, got)
	}
	if label, truth := s.ground.label(), s.ground.truth(); label != truth {
		s.ground.wantSoon("the label is right after "+name, func() bool { return s.ground.label() == s.ground.truth() })
	}
	return got.Text
}

// last returns the report with which a run of a button ends.
func (s *reportStream) last(name string) (got report) {
	s.ground.t.Helper()
	for s.lines.Scan() {
		s.hasNewButtons = s.hasNewButtons || s.lines.Text() == "event: buttons"
		data, isData := strings.CutPrefix(s.lines.Text(), "data: ")
		if !isData || json.Unmarshal([]byte(data), &got) != nil {
			continue
		}
		if got.Name == name && got.State != isGoing {
			return got
		}
	}
	s.ground.t.Fatalf("the stream of reports has ended: %v", s.lines.Err())
	return got
}

// wantNo checks that a report does not say something.
func wantNo(t *testing.T, text string, unwanted ...string) {
	t.Helper()
	for _, one := range unwanted {
		if strings.Contains(text, one) {
			t.Errorf("%q is in the report: %s", one, text)
		}
	}
}

func TestButtonsForPodsChangeTheLabel(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	s := g.reports()
	testkit.WantText(t, s.press("pod-more"), "There is a new pod, web-", "The label went from ", "patch")
	testkit.WantText(t, s.press("pod-less"), "is being deleted. It was gone after ", " ms after the pod was gone.")
	text := s.press("other-writer")
	testkit.WantText(t, text, "Another writer has changed the label from ", "The label went from 13 to ",
		"was overwritten.")
	testkit.WantText(t, s.press("wave"), "30 pods were created.", "The label went from ", "Now they are being deleted.",
		"after the deletion began")
	if g.cluster.hasPods(deployment("default", "wave", "", 0)) {
		t.Error("pods of the wave are left")
	}
}

func TestButtonsDisturbTheServer(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	s := g.reports()
	text := s.press("kill-server")
	testkit.WantText(t, text, "The server is gone.", " in vain.", "podcount watched again ", "The label went from ")
	wantNo(t, text, " list")
	testkit.WantText(t, s.press("expire-history"), "podcount began to list the pods again after ", "The label went from ")
	text = s.press("lose-event")
	testkit.WantText(t, text, "is gone, and no watch was told.", "Now the server has forgotten its history.",
		"podcount began to list the pods again after ", "The label went from ")
	wantNo(t, text, "something else has mended it")
}

func TestPressAfterAnotherOutageBeginsWhenPodcountIsBack(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	s := g.reports()
	g.use(func(c *cluster) { c.disturb(syscall.SIGUSR2) })
	g.use(func(c *cluster) { c.takeAway(time.Second) })
	text := s.press("kill-server")
	testkit.WantText(t, text, "First, podcount has to find the server again, which was away. The server is gone. ",
		"podcount watched again ", "The label went from ")
	wantNo(t, s.press("pod-more"), "First,")
}

func TestLongestPauseFollowsFromTheOutage(t *testing.T) {
	for _, row := range []struct{ outage, want time.Duration }{
		{100 * time.Millisecond, 1600 * time.Millisecond},
		{5 * time.Second, 6400 * time.Millisecond},
		{10 * time.Second, 12800 * time.Millisecond},
		{20 * time.Second, 25600 * time.Millisecond},
		{time.Hour, time.Minute},
	} {
		testkit.WantEqual(t, "the pause after "+row.outage.String(), longestPause(row.outage), row.want)
	}
}

func TestSlowServerAnswersLate(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	began := time.Now()
	text := g.reports().press("slow-server")
	testkit.WantText(t, text, "Each answer takes 2 s.", "The label went from ", "The server is fast again")
	if took := time.Since(began); took < slowness {
		t.Errorf("all was over after %v", took)
	}
}

// breakConnections breaks all connections to the server. Both ends get an error then.
func (g *testGround) breakConnections() {
	g.endpoint.Kill()
	g.endpoint.Restore()
}

func TestHalfOpenConnectionsGetNoEvents(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	g.wantAnswer(http.StatusOK, `{"run":`, "POST", "/playground/half-open")
	const isNoFailure = `","isRunning":true}`
	g.wantAnswer(http.StatusConflict, "this is still going on: press again when it is done"+isNoFailure,
		"POST", "/playground/half-open")
	g.wantAnswer(http.StatusConflict, `"error":"\"Half-open connection\" is still going on`,
		"POST", "/playground/kill-server")
	g.wantSoon("there is a pod that podcount does not see", func() bool { return g.label() != g.truth() })
	g.breakConnections() // podcount would notice the silence after 45 s
	got := g.reports().last("half-open")
	testkit.WantEqual(t, "the state of "+got.Text, got.State, isDone)
	testkit.WantText(t, got.Text,
		"Nothing passes any more on ", "podcount watched again after ", "The label went from ")
}

func TestSecondReplicaWaitsAndTakesOver(t *testing.T) {
	t.Parallel()
	g := startGround(t, "-leader-elect-retry-period=100ms", "-leader-elect")
	s := g.reports()
	first := g.identity()
	g.wantAnswer(http.StatusOK, `"label":"A second replica"`, "GET", "/playground")
	text := s.press("second-replica")
	testkit.WantText(t, text, "The second replica was started.", " about the Lease", "The first replica still leads.")
	wantNo(t, text, "patch", "Event")
	g.wantAnswer(http.StatusOK, `"label":"Stop the leader"`, "GET", "/playground")
	if !s.hasNewButtons {
		t.Error("the page was not told that the button is another one now")
	}
	testkit.WantEqual(t, "the replica on the page", g.identity(), first)

	text = s.press("second-replica")
	testkit.WantText(t, text, "The first replica has stopped", "The second replica leads, ", "The label went from ",
		"The first replica was started", "It waits now.")
	if second := g.identity(); second == first {
		t.Errorf("the page is still that of the old leader, %s", second)
	}
	testkit.WantText(t, s.press("restart"), "The second replica has stopped", " replica leads, ")
}

func TestNextLeaderWaitsForADeadOneAndAPausedOneEnds(t *testing.T) {
	t.Parallel()
	g := startGround(t, "-leader-elect", "-leader-elect-lease-duration=6s", "-leader-elect-renew-deadline=4s",
		"-leader-elect-retry-period=200ms")
	s := g.reports()
	testkit.WantText(t, s.press("pause"), "The first replica does nothing any more. There is a new pod",
		"The first replica went on after 1", "Until then, it wrote 0 labels.", "The label went from ")

	killed := time.Now()
	testkit.WantText(t, s.press("kill"), "The first replica is dead. The first replica was started.",
		"The first replica leads, ")
	if took := time.Since(killed); took < 5*time.Second {
		t.Errorf("the next leader led after %v, though nobody had given the Lease back", took)
	}

	s.press("second-replica")
	first := g.identity()
	testkit.WantText(t, s.press("pause"), "The second replica leads, ", "The first replica went on after ",
		"It saw that its time was over, and ended after ", "It had written 0 labels since. The first replica was started.")
	if g.identity() == first {
		t.Error("the page is still that of the paused leader")
	}
}

func TestPatchOfACountIsNoLabelThatWasWritten(t *testing.T) {
	var sent traffic
	sent.count(fakekube.Request{Route: fakekube.Route{Verb: "patch", Resource: "counts"}})
	testkit.WantEqual(t, "labels", sent.labels, 0)
	sent.count(fakekube.Request{Route: fakekube.Route{Verb: "patch", Resource: "nodes"}})
	testkit.WantEqual(t, "labels", sent.labels, 1)
	testkit.WantEqual(t, "patches", sent.patches, 2)
}

func TestPageSurvivesARestart(t *testing.T) {
	t.Parallel()
	g := startGround(t, "-leader-elect=false")
	g.wantAnswer(http.StatusConflict, "podcount runs without -leader-elect", "POST", "/playground/second-replica")
	g.wantAnswer(http.StatusOK, "<title>podcount</title>", "GET", "/")
	stream := g.do("GET", "/events")
	s := g.reports()
	testkit.WantText(t, s.press("restart"), "The first replica has stopped", "The first replica was started")
	io.Copy(io.Discard, stream.Body) // returns, because the stream has ended
	stream.Body.Close()
	g.wantAnswer(http.StatusOK, "podcount statusz", "GET", "/statusz")
}

func TestTwoPlaygroundsAtOnce(t *testing.T) {
	t.Parallel()
	one := startGround(t)
	other := startGround(t)
	if one.page == other.page {
		t.Fatalf("both have the page %s", one.page)
	}
	other.reports().press("pod-more")
	one.wantAnswer(http.StatusOK, "podcount statusz", "GET", "/statusz")
}

func TestPressEndsWithThePlayground(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	presses := newPresses(ctx)
	subscriber := presses.subscribe()
	button := &button{name: "endless"}
	if _, err := presses.begin(button, "", func(r *press) error { return r.wait(time.Hour) }); err != nil {
		t.Fatal(err)
	}
	cancel()
	presses.work.Wait()
	presses.unsubscribe(subscriber)
	var states []pressState
	for m := range subscriber {
		states = append(states, m.data.(report).State)
	}
	testkit.WantEqual(t, "the states", len(states), 2)
	testkit.WantEqual(t, "the last state", states[1], hasError)
	if _, err := presses.begin(button, "", nil); err != errEnding {
		t.Errorf("a press after the end: %v", err)
	}
}
