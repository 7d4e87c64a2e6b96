package course

import (
	"fmt"
	"slices"

	"podcount/lab/trial"
)

// Stage is a stage of the course.
type Stage struct {
	Number int    // from 1 on
	Name   string // such as "watch"
	Dir    string // in learn, such as "04-watch"
	Learns string // what its program learns, as the end of a sentence that begins with "It learns"
	Before string // what the stage before did wrong, as a sentence; "" for the first one

	rows []row
}

// row is a row of the trial that a stage is the first to learn.
type row struct {
	name string

	// earlier is the number of a stage that passes the row although it comes before; 0 if there is none.
	earlier int
}

// Stages that are unlike those before.
const (
	looking  = 3  // It does not end: it asks for everything again and again, so it gets over most faults.
	resuming = 5  // It takes an answer that is no list for an empty one, and gets all pods from its next watch.
	whoAmI   = 10 // From here on, a program needs no proxy.
	oneOfTwo = 12 // It elects a leader.
)

// by are rows that no stage before passes.
func by(names ...string) []row { return byAlso(0, names...) }

// byAlso are rows that one stage before passes, too.
func byAlso(earlier int, names ...string) (rows []row) {
	for _, name := range names {
		rows = append(rows, row{name: name, earlier: earlier})
	}
	return rows
}

// stages is the course.
var stages = []Stage{
	{
		Name: "count", Dir: "01-count",
		Learns: "to ask for a list, to count, and to print the number",
		rows:   by("prints", "no answer is no number"),
	},
	{
		Name: "write", Dir: "02-write",
		Learns: "to write a label with a merge patch: with a uid, and what 403, 404, 409 and 422 mean",
		Before: "Nobody but the one who has started it sees the number.",
		rows:   by("labels", "others' labels stay", "a node is gone", "another node", "says why not"),
	},
	{
		Name: "look again", Dir: "03-look-again",
		Learns: "to look again and again, and to write only what is wrong",
		Before: "The label was right once.",
		rows: by("counts", "follows", "quiet", "pages expire", "busy node", "answer lost", "write 409", "write 422",
			"write 429", "write 500", "forbidden", "stop", "stop at the start", "killed", "run twice",
			"changes while it writes"),
	},
	{
		Name: "watch", Dir: "04-watch",
		Learns: "to watch: a stream of changes that begins at the version of the list, into a map",
		Before: "It asked for everything all the time, and was late.",
		rows:   by("at once", "20,000 pods"),
	},
	{
		Name: "resume", Dir: "05-resume",
		Learns: "that every watch ends, and to resume where it stood; what bookmarks are for",
		Before: "It missed what came between two watches.",
		rows:   append(byAlso(looking, "watch ended", "watch cut", "bookmarks", "twin lags"), by("resumes")...),
	},
	{
		Name: "relist", Dir: "06-relist",
		Learns: "to list again after a 410; that a list is a difference, and half a list is none",
		Before: "It hung after a compaction, and kept dead pods. It ended when a list failed.",
		rows: slices.Concat(
			byAlso(looking, "watch too old", "watch expired", "server crashes", "etcd restored well",
				"list refused", "list 429", "list cut", "list truncated", "list garbage"),
			byAlso(resuming, "no list"),
		),
	},
	{
		Name: "patience", Dir: "07-patience",
		Learns: "to wait longer after each failure, with jitter, as the server asks; and to wait for nothing for ever",
		Before: "It hammered a server that was sick, and waited for ever for one that said nothing.",
		rows: slices.Concat(
			byAlso(looking, "without etcd", "unauthorized"),
			by("list unanswered", "watch half-open", "asked to wait"),
			byAlso(looking, "patient", "watch unanswered", "server away", "crash loop", "crowd returns",
				"etcd restored", "stop without server"),
		),
	},
	{
		Name: "two kinds", Dir: "08-two-kinds",
		Learns: "to watch nodes, too, with a cache for each kind, and an index for a label of each node",
		Before: "A new node had no label until the next pod came.",
		rows: slices.Concat(
			byAlso(looking, "overwritten", "new node", "demoted", "node recreated",
				"replaced while it writes", "fight"),
			by("own pods"),
		),
	},
	{
		Name: "queue", Dir: "09-queue",
		Learns: "to put keys and not events into a queue, with several workers; a key that fails delays no other",
		Before: "One stuck node stopped all.",
		rows:   by("slow webhook"),
	},
	{
		Name: "who am I", Dir: "10-who-am-i",
		Learns: "TLS, a kubeconfig, and the token of a pod, which changes",
		Before: "It needed kubectl to get through. With a token of its own, it would have been dead when that ended.",
		rows:   by("token rotated"),
	},
	{
		Name: "say so", Dir: "11-say-so",
		Learns: "to post Events, and to end what it has begun before it stops",
		Before: "It was silent, and a stop cut it off in the middle of a write.",
		rows:   by("an Event", "stopped while it writes"),
	},
	{
		Name: "one of two", Dir: "12-one-of-two",
		Learns: "the Lease, with which several replicas choose the one that writes",
		Before: "Two replicas both wrote.",
		rows:   by("foreign leader", "two replicas", "hands over", "cannot renew", "another clock", "paused leader"),
	},
}

func init() {
	for i := range stages {
		stages[i].Number = i + 1
	}
}

// beyond is the row that no stage passes but the one that looks again and again. A watch that has lost an event looks
// like any other, so podcount compares its caches with a list once an hour.
const beyond = "event lost"

// stageNamed returns the stage of this number.
func stageNamed(number int) (Stage, error) {
	if number < 1 || number > len(stages) {
		return Stage{}, fmt.Errorf("there is no stage %d: the stages are 1 to %d", number, len(stages))
	}
	return stages[number-1], nil
}

// allRows returns the rows that the stages learn, and the one beyond them.
func allRows() []trial.Row { return slices.Concat(trial.Steps(), trial.Rows()) }

// trialRow returns the row of the trial of this name.
func trialRow(name string) trial.Row {
	for _, row := range allRows() {
		if row.Name == name {
			return row
		}
	}
	panic("course: the trial has no row " + name)
}

// newRows returns the rows that a stage is the first to learn.
func (s Stage) newRows() (rows []trial.Row) {
	for _, row := range s.rows {
		rows = append(rows, trialRow(row.name))
	}
	return rows
}

// oldRows returns the rows of the stages before that this one still has to pass.
func (s Stage) oldRows() (rows []trial.Row) {
	for _, before := range stages[:s.Number-1] {
		for _, row := range before.newRows() {
			if s.mustPass(row.Name) {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// mustPass reports whether the table says that a stage passes a row.
func (s Stage) mustPass(name string) bool {
	for _, learner := range stages {
		for _, row := range learner.rows {
			if row.name == name {
				isOver := learner.Number < looking && s.Number >= looking // a row for a program that ends
				return s.Number >= learner.Number && !isOver || s.Number == row.earlier
			}
		}
	}
	return s.Number == looking && name == beyond
}

// isJudgedBy reports whether a row can show something about a stage. The rows of the first stages are for a program
// that ends by itself, and "stop" and "stop at the start" for one that does not.
func (s Stage) isJudgedBy(name string) bool {
	if s.Number < looking {
		return name != "stop" && name != "stop at the start"
	}
	isForOne := func(first Stage) bool {
		return slices.ContainsFunc(first.rows, func(r row) bool { return r.name == name })
	}
	return !slices.ContainsFunc(stages[:looking-1], isForOne)
}

// program gives a program, which is a function or a line for a shell, what the page of the stage promises.
func (s Stage) program(p trial.Program) trial.Program {
	p.IsProxied = s.Number < whoAmI
	p.UsesKubeconfig = s.Number >= whoAmI
	p.Elects = s.Number >= oneOfTwo
	return p
}
