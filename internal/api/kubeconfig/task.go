package kubeconfig

import "context"

// task is a function that runs in a goroutine. Several callers may wait for its result, each with its own context.
type task[T any] struct {
	done  chan struct{} // closed once value and err are set
	value T
	err   error
}

// startTask runs f in a new goroutine.
func startTask[T any](f func() (T, error)) *task[T] {
	t := &task[T]{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.value, t.err = f()
	}()
	return t
}

// wait waits until the task is done and its result can be read. If ctx ends first, wait returns the cause.
func (t *task[T]) wait(ctx context.Context) error {
	if t.isDone() {
		return nil // even if ctx has ended, too
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *task[T]) isDone() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}
