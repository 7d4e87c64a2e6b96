package fakekube

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"mime"
	"net/http"
	"strings"
)

// serveUpstream lets the upstream answer a request. Like a watch of the fake, one of the upstream ends with EndWatches
// and breaks with BreakWatches.
func (s *Server) serveUpstream(w http.ResponseWriter, r *http.Request, info Request, arrival arrivalState) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	isWatch := info.Verb == "watch"
	if isWatch {
		go func() {
			select {
			case <-arrival.watchEnd.done:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	passedOn := r.Clone(ctx)
	passedOn.Body = io.NopCloser(strings.NewReader(info.Body))
	passedOn.ContentLength = int64(len(info.Body))
	answer := &upstreamAnswer{ResponseWriter: w, isWatch: isWatch, isOver: func() bool { return ctx.Err() != nil }}
	isAborted := answer.get(s.Upstream, passedOn)
	isEnded := isWatch && arrival.watchEnd.isOver()
	if isEnded && arrival.watchEnd.isBroken || isAborted && !isEnded {
		panic(http.ErrAbortHandler)
	}
	answer.sendRest()
}

// isOver reports whether the watches must end.
func (e *watchEnding) isOver() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// upstreamAnswer passes on the answer of an upstream in the same pieces in which the fake would write its own: a watch
// event by event, and any other answer as a whole. So the effects of faults find their frames. What is neither JSON nor
// protobuf passes as it comes.
type upstreamAnswer struct {
	http.ResponseWriter
	isWatch bool
	isOver  func() bool // from then on, nothing passes any more

	hasBegun  bool // the status has been sent
	pending   []byte
	nextPiece func(pending []byte) (length int) // 0 while it is incomplete; nil if everything passes as it comes
}

// get calls the upstream. isAborted means that it has broken off its answer.
func (a *upstreamAnswer) get(upstream http.Handler, r *http.Request) (isAborted bool) {
	defer func() {
		problem := recover()
		isAborted = problem == http.ErrAbortHandler
		if problem != nil && !isAborted {
			panic(problem)
		}
	}()
	upstream.ServeHTTP(a, r)
	return false
}

// Unwrap gives http.ResponseController access to Hijack, which kubectl exec needs.
func (a *upstreamAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *upstreamAnswer) WriteHeader(code int) {
	if a.isOver() {
		return
	}
	if code >= 200 {
		a.hasBegun = true
		a.nextPiece = a.piecesOf(code)
	}
	a.ResponseWriter.WriteHeader(code)
	if a.isWatch {
		a.flush()
	}
}

// piecesOf returns the nextPiece of an answer with this code.
func (a *upstreamAnswer) piecesOf(code int) func([]byte) int {
	media, _, _ := mime.ParseMediaType(a.Header().Get("Content-Type"))
	isStream := a.isWatch && code == http.StatusOK
	switch {
	case media != mediaJSON && media != mediaProtobuf:
		return nil
	case !isStream:
		return func([]byte) int { return 0 } // sendRest sends it
	case media == mediaJSON:
		return func(pending []byte) int { return bytes.IndexByte(pending, '\n') + 1 }
	}
	return protobufEventLength
}

// protobufEventLength returns the length of the first event of a watch in protobuf, or 0 if it is incomplete. Each
// begins with its length.
func protobufEventLength(pending []byte) int {
	const prefix = 4
	if len(pending) < prefix {
		return 0
	}
	length := prefix + int(binary.BigEndian.Uint32(pending))
	if len(pending) < length {
		return 0
	}
	return length
}

func (a *upstreamAnswer) Write(p []byte) (int, error) {
	if !a.hasBegun {
		a.WriteHeader(http.StatusOK)
	}
	if a.isOver() {
		return len(p), nil
	}
	if a.nextPiece == nil {
		return a.ResponseWriter.Write(p)
	}
	a.pending = append(a.pending, p...)
	for length := a.nextPiece(a.pending); length > 0; length = a.nextPiece(a.pending) {
		if _, err := a.ResponseWriter.Write(a.pending[:length]); err != nil {
			return 0, err
		}
		a.flush()
		a.pending = a.pending[length:]
	}
	return len(p), nil
}

// sendRest sends what is left when the upstream has ended its answer.
func (a *upstreamAnswer) sendRest() {
	if len(a.pending) > 0 && !a.isOver() {
		a.ResponseWriter.Write(a.pending)
	}
}

// Flush flushes what passes as it comes. Anything else passes in pieces, whose end Flush cannot know.
func (a *upstreamAnswer) Flush() {
	if !a.hasBegun {
		a.WriteHeader(http.StatusOK)
	}
	if a.nextPiece == nil {
		a.flush()
	}
}

func (a *upstreamAnswer) flush() { http.NewResponseController(a.ResponseWriter).Flush() }
