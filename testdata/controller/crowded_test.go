package main

import (
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/suite"
	"podcount/lab/testkit"
)

func TestCrowdedNamespaceIsLogged(t *testing.T) {
	withController(t, crowded)
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) { // virtual time: a minute takes no time
		fixture.AddPods(f, 3) // in the namespace default, which exists; others first need an f.Put("namespaces", …)
		p := suite.Program(run).Start(t, f, "-controllers", "crowded", "-crowded-limit", "2")
		testkit.Pass(time.Minute)
		testkit.WantText(t, p.Log.String(), `msg="a namespace is crowded" controller=crowded namespace=default`)
		testkit.WantNumber(t, "Events", len(suite.EventsOf(f, "Crowded")), 1)
	})
}
