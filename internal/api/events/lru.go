package events

import "container/list"

// lru is a map with at most limit keys. When it is full, a new key replaces the least recently used one. It is not safe
// for concurrent use.
type lru[K comparable, V any] struct {
	limit   int
	byKey   map[K]*list.Element
	entries *list.List // of lruEntry[K, V], most recently used first
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](limit int) *lru[K, V] {
	return &lru[K, V]{limit: limit, byKey: map[K]*list.Element{}, entries: list.New()}
}

func (l *lru[K, V]) len() int { return l.entries.Len() }

// get returns the value of a key, and makes the key the most recently used one. It adds a missing key with a new value.
func (l *lru[K, V]) get(key K, newValue func() V) V {
	if element := l.byKey[key]; element != nil {
		l.entries.MoveToFront(element)
		return element.Value.(lruEntry[K, V]).value
	}
	if l.len() == l.limit {
		oldest := l.entries.Remove(l.entries.Back()).(lruEntry[K, V])
		delete(l.byKey, oldest.key)
	}
	value := newValue()
	l.byKey[key] = l.entries.PushFront(lruEntry[K, V]{key, value})
	return value
}
