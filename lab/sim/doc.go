// Package sim simulates a cluster in virtual time. Pods, nodes and custom resources come, move and go, and everything
// that can fail does fail. The program runs in this cluster as one process or several, each on a network of its own.
//
// The simulation checks the program against rules. It checks each request on arrival, and it compares each process's
// log of its watches with the events that the server has sent. From time to time all faults stop. Then all labels and
// statuses must become right.
//
// # What a seed determines
//
// First, a seed draws how the processes reach the server (access.go): over plain HTTP or TLS, with or without HTTP/2,
// and with which kind of credential. It also draws the program's flags (flags.go), the number of processes, and a
// selection of faults. Then it draws one step after another (steps.go): a change in the cluster's life (life.go,
// limits.go), or a fault (faults.go, requestfaults.go, ratefaults.go, accessfaults.go). All the time, credentials
// expire and are renewed (credential.go). After a while all faults stop. Everything must be right within a bound, which
// Options explains, and after that nothing may be written (oracle.go). Then the cluster lives on without faults, and
// labels and statuses must follow at once or after a short delay (freshness.go). Last, objects are rewritten without a
// change that matters, and nothing may be written (rewrites.go). The processes must then hold no more goroutines and
// connections than before (leaks.go). That is an act. Acts follow until there were 90 minutes of life, or 20 hours if
// the seed is a multiple of 50.
//
// Three sets of rules always apply: those for requests (checks.go), which depend on what each process knows
// (knowledge.go), those for credentials (accesschecks.go), and those for the logs of the processes (logs.go). A
// request may be older than it seems, because net/http retries some requests (httpretries.go).
//
// The same seed always leads to the same changes and faults. It does not determine the program's own random numbers or
// the scheduler, so a seed that has failed once may pass the next time.
//
// # The shortest story
//
// When a seed fails, RunSeeds looks for the shortest story that still breaks the same rule (shrink.go). It runs the
// seed again and again, each time without some of its steps. That works because each step draws from dice of its own
// (dice.go), made from the seed and the number of the step. Options.Only runs the steps that were found.
//
// # The history
//
// With Options.Recording, a seed leaves a history (history.go): the changes of the cluster, the faults, the broken
// rules, and the steps of each process's trace, in lanes side by side. It is bounded (recorder.go).
//
// # How to run it
//
// A test passes RunSeeds its program and the seeds:
//
//	options := sim.Options{Program: run, TotalLabel: "example.com/pods"} // and all other options
//	sim.RunSeeds(t, options, sim.Seeds{First: 1, Last: 100})
//
// If a rule is broken, the test reports the rule, what led to it, and how to run that seed again.
//
// # The sweep
//
// A simulation meets faults at random, so it may never meet a rare moment. The sweep is complete instead, for a short
// life of one process (sweepplans.go). It records the requests of this life. Then it lives it again for each request
// and each way to fail (sweepfaults.go), with exactly that one fault (sweeplife.go). At the end of each stage of the
// life, everything must become right within the bound. In the end, the process must stop in an orderly way. The rules
// above apply, too.
//
// A request is identified by its stage, its class and its number in that class, such as "start: list pods 1". So it is
// the same request in each run, although requests for different resources overtake each other.
//
//	sim.RunSweep(t, sim.Sweep{Options: options, Every: 50}) // each 50th case
//
// # What it knows about the program
//
// The package knows podcount's rules: what podcount counts, which labels and statuses show the counts, and that
// podcount must list all pods before it writes. It also knows podcount's flags, the kubeconfigs that it reads, and the
// few lines of its log that logs.go reads. It does not know podcount's code. The program comes as a function, and
// everything that may differ between two builds comes in Options.
//
// The package imports only the fake API server and the standard library. It never waits in real time, and opens no
// connection outside the process. It writes kubeconfigs and credentials to a directory of the test. A program that
// prints a token is the system's cat.
package sim
