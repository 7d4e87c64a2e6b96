package trial

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
)

// trial is what all rows share.
type trial struct {
	program     Program
	authority   *fakekube.Authority
	certificate tls.Certificate
	real        *realCluster // nil if each row has a fake of its own
}

// podLabel is the key of the label that programs keep.
const podLabel = "trial.podcount.dev/pods"

func newTrial(p Program) *trial {
	authority := fakekube.NewAuthority("trial's CA")
	certificate, err := tls.X509KeyPair(authority.Issue("trial", nil))
	if err != nil {
		panic(err)
	}
	return &trial{program: p, authority: authority, certificate: certificate}
}

// Run puts a controller on trial within a test, in virtual time: each row is a subtest in a bubble of its own. The
// test fails for each row that the controller does not pass. words choose rows by their group or name; no words choose
// all.
//
// Rows that only a process can take, such as being frozen, are skipped, as is a row that the program does not claim to
// be able to take: see Program.
func Run(t *testing.T, p Program, words ...string) {
	if p.Run == nil {
		t.Fatal("the Program has no Run, which is what runs in virtual time")
	}
	rows, err := choose(Rows(), words)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		t.Run(row.Group+"/"+row.Name, func(t *testing.T) {
			switch r := RunRow(t, p, row); {
			case r.Verdict == Skipped:
				t.Skip(r.Detail)
			case r.Green():
				t.Logf("%s (%s)", r.Summary(), row.Name)
			default:
				t.Error(r.Story())
			}
		})
	}
}

// RunRow plays a row within a test, in virtual time, and returns the result. The test does not fail for it.
func RunRow(t *testing.T, p Program, row Row) (r Result) {
	t.Helper()
	tr := newTrial(p)
	if why := tr.missing(row); why != "" {
		return Result{Row: row, Verdict: Skipped, Detail: why}
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { r = tr.run(t.Context(), row, true, dir) })
	return r
}

// Options choose how All runs.
type Options struct {
	// Rows are the rows to run, such as some of Steps. No rows mean all of Rows.
	Rows []Row

	// Words choose among these by their group or name. No words choose all.
	Words []string

	// Parallel is how many rows run at once. 0 means 12.
	Parallel int

	// Hours also runs the rows that take hours.
	Hours bool

	// Kubeconfig is a file that leads to a real cluster, with Context as the context to use, or "" for the current one.
	// Then only the rows that need no fake run. If it is "", each row has a fake of its own.
	Kubeconfig, Context string

	// Began is called when a row begins, and Ended with its result, by one goroutine at a time.
	Began func(Row)
	Ended func(Result)
}

// All puts a program on trial in real time, and returns the results in the order of the rows. When ctx ends, the rows
// that run are interrupted. The error says why no row could run.
func All(ctx context.Context, p Program, o Options) ([]Result, error) {
	rows := o.Rows
	if len(rows) == 0 {
		rows = Rows()
	}
	rows, err := choose(rows, o.Words)
	if err != nil {
		return nil, err
	}
	if p.Run == nil && p.command == "" {
		return nil, errors.New("the Program has neither a Run nor a command")
	}
	if o.Kubeconfig != "" && p.Job != nil {
		return nil, errors.New("a Job needs the fake, so it cannot be tried on a real cluster")
	}
	if o.Began == nil {
		o.Began = func(Row) {}
	}
	if o.Ended == nil {
		o.Ended = func(Result) {}
	}
	tr := newTrial(p)
	parallel := cmp.Or(max(0, o.Parallel), 12)
	if o.Kubeconfig != "" {
		real, err := openRealCluster(ctx, o.Kubeconfig, o.Context)
		if err != nil {
			return nil, err
		}
		defer real.close()
		tr.real = real
	}
	dir, err := os.MkdirTemp("", "trial-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	r := &runner{trial: tr, ctx: ctx, options: o, dir: dir, rows: rows, results: make([]Result, len(rows))}
	order := slowestFirst(rows)
	if rows[0].Name == firstRow {
		r.run(0)
		verdict := r.results[0].Verdict
		r.hasFailed = verdict == Wrong || verdict == Exited
		order = slices.DeleteFunc(order, func(i int) bool { return i == 0 })
	}
	var running sync.WaitGroup
	places := make(chan struct{}, parallel)
	for _, i := range order {
		places <- struct{}{}
		running.Go(func() {
			r.run(i)
			<-places
		})
	}
	running.Wait()
	return r.results, nil
}

// firstRow is the row that runs before all others. Who is never right there fails all, so that these need not run.
const firstRow = "counts"

// runner runs rows in real time. Its methods may be called by several goroutines.
type runner struct {
	*trial
	ctx     context.Context
	options Options
	dir     string
	rows    []Row
	results []Result

	// hasFailed says that the program has failed firstRow. It does not change while rows run.
	hasFailed bool

	mu sync.Mutex // lets Began and Ended be called by one goroutine at a time
}

// run runs the row with this index.
func (r *runner) run(i int) {
	row := r.rows[i]
	if why := r.whyNot(i); why != "" {
		r.results[i] = Result{Row: row, Verdict: Skipped, Detail: why}
	} else {
		r.tell(func() { r.options.Began(row) })
		r.results[i] = r.trial.run(r.ctx, row, false, filepath.Join(r.dir, fmt.Sprint(i)))
	}
	r.tell(func() { r.options.Ended(r.results[i]) })
}

func (r *runner) tell(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// whyNot says why a row does not run. It returns "" if it does.
func (r *runner) whyNot(i int) string {
	switch {
	case r.ctx.Err() != nil:
		return "the trial was stopped"
	case r.hasFailed:
		return "it has failed the row " + firstRow
	case r.rows[i].needs&needsHours != 0 && !r.options.Hours:
		return "it takes hours"
	}
	return r.missing(r.rows[i])
}

// RunAll is All within a test, with a subtest for each row. An interrupt ends it early, and what it has created in a
// real cluster is still removed.
func RunAll(t *testing.T, p Program, o Options) {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	if o.Ended == nil {
		o.Ended = func(r Result) { t.Logf("%s: %s", r.Name, r.Summary()) }
	}
	results, err := All(ctx, p, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Run(r.Group+"/"+r.Name, func(t *testing.T) {
			switch {
			case r.Verdict == Skipped:
				t.Skip(r.Detail)
			case !r.Green():
				t.Error(r.Story())
			}
		})
	}
}

// slowestFirst returns the indexes of the rows, in the order in which all of them take the least time together.
func slowestFirst(rows []Row) []int {
	indexes := make([]int, len(rows))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortStableFunc(indexes, func(a, b int) int { return cmp.Compare(rows[b].limit, rows[a].limit) })
	return indexes
}

// missing says why a row cannot run with this program. It returns "" if it can.
func (tr *trial) missing(row Row) string {
	switch {
	case tr.program.KnownFailures[row.Name] != "":
		return "known to fail: " + tr.program.KnownFailures[row.Name]
	case row.needs&needsElection != 0 && !tr.program.Elects:
		return "the program does not say that it elects a leader"
	case row.needs&needsCredential != 0 && !tr.program.UsesKubeconfig:
		return "the program does not say that it takes its credential from the kubeconfig"
	case row.needs&needsPods != 0 && tr.program.Job != nil:
		return "the job is not to count pods"
	case row.needs&needsProcess != 0 && tr.program.command == "":
		return "only a process can be frozen"
	case row.needs&needsFake != 0 && tr.real != nil:
		return "only a fake API server can do this"
	}
	return ""
}

// run plays a row. dir is a directory for its files.
func (tr *trial) run(ctx context.Context, row Row, isVirtual bool, dir string) (r Result) {
	s := tr.newScene(ctx, row, isVirtual, dir)
	defer s.close()
	verdict := s.judge()
	r = Result{Row: row, Verdict: verdict.verdict, Detail: verdict.detail, Limit: s.limit().Seconds()}
	if r.Verdict == Right {
		r.Note = s.note()
		r.Seconds = max(0, s.settledAt.Sub(s.endedAt).Seconds())
	}
	r.Requests = len(s.fake.Received(fakekube.Requests{}))
	if r.Verdict != Right {
		s.say("verdict: %s: %s", r.Verdict, r.Detail)
	}
	r.Timeline = s.timeline.all()
	s.close() // After that, a process tells how much memory it took.
	for _, p := range s.instances {
		if p.process != nil {
			r.Output += p.process.output()
			r.Peak = max(r.Peak, p.process.peak())
		}
	}
	return r
}

// judge plays the row, and lets each check have its say.
func (s *scene) judge() ended {
	verdict := s.played()
	for _, fault := range []ended{{FalseNumber, s.falsehood}, {HotLoop, s.hotLoop()}} {
		switch {
		case fault.detail == "":
		case verdict.verdict == Right:
			verdict = fault
		default:
			verdict.detail += "; and " + fault.detail
		}
	}
	return verdict
}

// played plays the row, and returns how it has ended.
func (s *scene) played() (verdict ended) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case ended:
			verdict = problem
		default:
			verdict = ended{Broken, fmt.Sprintf("panic: %v\n%s", problem, debug.Stack())}
		}
	}()
	s.job.setup()
	s.row.play(s)
	if s.endedAt.IsZero() {
		s.faultEnds()
	}
	s.finish()
	s.checkLease()
	return ended{verdict: Right}
}

func (tr *trial) newScene(ctx context.Context, row Row, isVirtual bool, dir string) *scene {
	s := &scene{
		trial:     tr,
		row:       row,
		ctx:       ctx,
		isVirtual: isVirtual,
		dir:       dir,
		fake:      fakekube.New(),
		token:     rand.Text(),
		label:     podLabel,
		timeline:  &timeline{began: time.Now()},
		wake:      make(chan struct{}, 1),
		election:  election{holders: map[string]*instance{}},
	}
	s.fake.Allow(s.token)
	s.api = s.fake
	s.cluster = fakeCluster{s.fake, s.label}
	if tr.real != nil {
		s.cluster = tr.real.forRow(s)
	}
	if other := tr.program.Job; other != nil {
		s.job = otherJob{other, s.fake}
		s.reads = other.Reads
		s.writes = other.Writes
		return s
	}
	s.counting = &counting{
		scene:  s,
		nodes:  []string{s.prefix + "cp-1", s.prefix + "cp-2"},
		truths: map[string]bool{},
		fought: map[string]bool{},
	}
	s.job = s.counting
	s.reads = "pods"
	s.writes = "nodes*"
	return s
}

// close ends the programs, and removes what the row has created. It may be called again.
func (s *scene) close() {
	if s.isClosed {
		return
	}
	s.isClosed = true
	for _, p := range s.instances {
		p.close()
	}
	s.cluster.remove()
}

// otherJob is the job of an author.
type otherJob struct {
	job  *Job
	fake *fakekube.Server
}

func (j otherJob) setup() { j.job.Setup(j.fake) }

func (j otherJob) change(n int) string {
	j.job.Change(j.fake, n)
	return fmt.Sprintf("change %d", n)
}

func (j otherJob) right() error { return j.job.Right(j.fake) }
