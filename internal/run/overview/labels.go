package overview

import (
	"iter"
	"slices"
	"strconv"
	"time"

	"podcount/internal/view/page"
)

// Label is a label that a controller keeps right on nodes. Safe for concurrent use.
type Label struct {
	name    string
	isOwn   bool // each node has a number of its own
	nodes   iter.Seq[LabelOnNode]
	history page.LabelHistory
}

// LabelOnNode says whether a node should show a label, and whether the label is wrong there.
type LabelOnNode struct {
	Node    string
	Shows   bool
	IsWrong bool
}

// NewLabel returns a label that was never written. isOwn says that each node has a number of its own, and not the
// total. nodes must yield all nodes.
func NewLabel(name string, isOwn bool, nodes iter.Seq[LabelOnNode]) *Label {
	return &Label{name: name, isOwn: isOwn, nodes: nodes}
}

// Wrote tells that podcount has written the label on a node.
func (l *Label) Wrote() { l.history.Wrote() }

// lossGrace is how long no watch may be open until the page says how old the numbers are. A watch that ends is followed
// by the next one at once.
const lossGrace = 5 * time.Second

// labels returns what is kept right on nodes. Call it once a second, because nothing else tells when a label becomes
// right or wrong.
func (v *Overview) labels() []page.Label {
	isPruned := v.Flags.Prune // It does not matter then how many pods there are.
	isKnown := v.Nodes.State().IsSynced && (isPruned || v.Pods.State().IsSynced)
	lostAt := v.lostAt()
	labels := []page.Label{}
	for _, label := range v.Labels {
		l := page.Label{Name: label.name, IsOwn: label.isOwn, IsKnown: isKnown, Nodes: []string{}, Wrong: []string{}}
		for on := range label.nodes {
			l.AddNode(on.Node, on.Shows, on.IsWrong)
		}
		if isKnown && !label.isOwn && !isPruned {
			l.Value = strconv.Itoa(v.Pods.State().Objects)
		}
		label.history.Describe(&l)
		if lostAt != nil && time.Since(*lostAt) > lossGrace {
			l.SecondsOld = page.SecondsSince(*lostAt)
		}
		labels = append(labels, l)
	}
	return labels
}

// LabelsAge says in the log of an outage how old the numbers in the labels are: podcount has not heard of the pods or
// the nodes since then. It says nothing if podcount hears of both, or writes no labels. It must not ask a cache for its
// state, which waits for the log of the outage.
func (v *Overview) LabelsAge() []any {
	lostAt := v.lostAt()
	writesLabels := slices.Contains(v.caches, v.Nodes) && !v.Flags.DryRun
	if !writesLabels || lostAt == nil {
		return nil
	}
	return []any{"labels_age", time.Since(*lostAt).Round(time.Second)}
}

// lostAt returns since when no watch keeps the pods or the nodes up to date. It is nil if both are.
func (v *Overview) lostAt() *time.Time {
	losses := []*time.Time{v.Pods.LostAt(), v.Nodes.LostAt()}
	losses = slices.DeleteFunc(losses, func(at *time.Time) bool { return at == nil })
	if len(losses) == 0 {
		return nil
	}
	return slices.MinFunc(losses, func(a, b *time.Time) int { return a.Compare(*b) })
}
