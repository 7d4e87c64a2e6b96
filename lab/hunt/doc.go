// Package hunt is the hunt for bugs behind `make bug`. It builds podcount with one of the mutants of package mutants,
// without saying which, lets the playground show the symptom, and judges the answer.
//
// The catalogue, in bugs_easy.go, bugs_middle.go and bugs_hard.go, has the bugs: what a user would report, and a
// script for the playground that makes it happen. The rest of the story comes from the mutant, so that it cannot be
// out of date. To add a bug, choose a mutant whose symptom a person can see, and write an entry. `.ci/hunt` proves
// each symptom: the broken podcount has to show it, and the sound one must not.
package hunt
