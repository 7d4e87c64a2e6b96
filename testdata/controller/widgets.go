// This file is an example of a controller that writes to an object. It is compiled beside main.go: see
// docs/build/controller.md.
package main

import (
	"context"
	"strconv"

	"podcount/deploy"
	"podcount/internal/api/object"
	"podcount/internal/control/brakes"
)

var widgets = Registration{
	Name:  "widgets",
	About: "writes the number of pods in the namespace of each Widget to its status",
	Setup: setUpWidgets,
	Rights: []deploy.Right{
		{APIGroup: "example.com", Resource: "widgets", Verbs: []string{"list", "watch"}},
		{APIGroup: "example.com", Resource: "widgets/status", Verbs: []string{"patch"}},
	},
}

func init() { registered = append(registered, widgets) }

func setUpWidgets(p *program, c *Controller) {
	type fields struct{ Status struct{ Pods int } }
	kind := object.JSONKind[fields]("Widget", "/apis/example.com/v1", "widgets")
	kind.Namespace = p.options.Namespace // so that -namespace applies to it, too
	cache := NewCache(p, kind)
	namespaceOf := func(w *object.JSONObject[fields]) Key { return Key{Name: w.Key().Namespace} }
	widgetsIn := IndexBy(cache.store, namespaceOf)
	podsIn := NumberBy(p.pods.store, func(pod *Pod) Key { return Key{Name: pod.Key().Namespace} })
	WatchOwn(c, cache)
	Watch(c, p.pods, func(change Delta[*Pod]) {
		for _, widget := range widgetsIn.Objects(Key{Name: change.Key().Namespace}) {
			c.Add(widget.Key())
		}
	})
	c.Reconcile = func(ctx context.Context, key Key) (Result, error) {
		// Correct may call this function again after a wait, so it reads the caches each time.
		err := c.Brakes.Correct(ctx, key, func() *brakes.Comparison {
			widget := cache.Get(key)
			if widget == nil {
				return nil
			}
			right := podsIn.Number(namespaceOf(widget))
			shown := widget.Fields.Status.Pods
			pods := brakes.Field{
				Name:    "status.pods",
				From:    brakes.Value{Text: strconv.Itoa(shown), Exists: true},
				To:      brakes.Value{Text: strconv.Itoa(right), Exists: true},
				IsWrong: shown != right,
			}
			patch := func(ctx context.Context, _ []brakes.Field) (dropped []string, err error) {
				change := map[string]any{"status": map[string]any{"pods": right}}
				// The server may drop fields that its schema does not know. Writing them is retried rarely.
				droppedFrom := func(now *object.JSONObject[fields]) (dropped []string) {
					if now.Fields.Status.Pods != right {
						dropped = append(dropped, pods.Name)
					}
					return dropped
				}
				return cache.Patch(ctx, widget, "status", change, droppedFrom) // "" patches the object itself
			}
			return &brakes.Comparison{Kind: "widget", UID: widget.UID(), Fields: []brakes.Field{pods}, Patch: patch}
		})
		return Result{}, err
	}
}
