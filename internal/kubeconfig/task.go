package kubeconfig

import "context"

// task is a call that may take long. Whoever needs its result waits for it as long as they can.
type task[T any] struct {
	done  chan struct{} // closed once value and err are set
	value T
	err   error
}

// startTask calls f, in a goroutine of its own.
func startTask[T any](f func() (T, error)) *task[T] {
	t := &task[T]{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.value, t.err = f()
	}()
	return t
}

// wait waits until the task is done; or else it returns why ctx has ended.
func (t *task[T]) wait(ctx context.Context) error {
	if t.isDone() {
		return nil // also where ctx has ended since
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
