package events

import "container/list"

// lru is a map of limited size. Where it is full, a new key takes the place of the one that was used least recently.
type lru[K comparable, V any] struct {
	limit   int
	byKey   map[K]*list.Element
	entries *list.List // of lruEntry[K, V], the one used last in front
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](limit int) *lru[K, V] {
	return &lru[K, V]{limit: limit, byKey: map[K]*list.Element{}, entries: list.New()}
}

func (l *lru[K, V]) len() int { return l.entries.Len() }

// get returns the value of key, which now counts as used. A key that is not there gets the value that makeOne returns.
func (l *lru[K, V]) get(key K, makeOne func() V) V {
	if found := l.byKey[key]; found != nil {
		l.entries.MoveToFront(found)
		return found.Value.(lruEntry[K, V]).value
	}
	if l.len() == l.limit {
		oldest := l.entries.Remove(l.entries.Back()).(lruEntry[K, V])
		delete(l.byKey, oldest.key)
	}
	value := makeOne()
	l.byKey[key] = l.entries.PushFront(lruEntry[K, V]{key, value})
	return value
}
