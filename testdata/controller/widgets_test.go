package main

import (
	"fmt"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/suite"
	"podcount/lab/testkit"
)

func TestWidgetShowsItsPods(t *testing.T) {
	withController(t, widgets)
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Serve(fakekube.Kind{Group: "example.com", Resource: "widgets", Kind: "Widget"})
		f.PutJSON("widgets", `{"metadata":{"namespace":"default","name":"w"}}`)
		fixture.AddPods(f, 3)
		suite.Program(run).Start(t, f, "-controllers", "widgets")
		testkit.Pass(time.Minute)
		widget := f.Get("widgets", fakekube.Key{Namespace: "default", Name: "w"})
		status, _ := widget["status"].(fakekube.Object)
		testkit.WantEqual(t, "the status", fmt.Sprint(status["pods"]), "3")
	})
}
