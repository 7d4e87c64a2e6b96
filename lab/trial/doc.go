// Package trial puts a controller on trial: it lets happen to it what happens to controllers in real clusters, one
// fault at a time, and says whether the controller was right again, after how long, and what it did to the API server
// meanwhile.
//
// The controller has one job: it keeps the label $TRIAL_LABEL of each control-plane node, which is a node with the
// label node-role.kubernetes.io/control-plane, equal to the number of pods in the cluster. Any program in any language
// can be on trial as a black box, in real time:
//
//	make trial PROGRAM='./mine --kubeconfig $KUBECONFIG'
//
// Run does the same within a test of a controller in Go, in virtual time, and also for another job.
//
// The trial consists of rows. A row starts the program against an API server of its own, which is package fakekube
// behind a network of its own, lets the fault happen, changes the pods, and waits. In a row, the number of pods grows
// with each change, and cannot be reached by missing some of the changes, so that a stale label is hardly right by
// chance. When all is right after the fault, the pods change once more, and it must be right again.
package trial
