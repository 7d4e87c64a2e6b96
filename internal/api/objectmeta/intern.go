package objectmeta

// Interner returns equal texts as the same string, so that many objects can share it. It is not safe for concurrent
// use. Make it as a map.
type Interner map[string]string

// Intern returns text as a string. It allocates nothing if it knows the text. It may have forgotten a text, and then
// returns a new string.
func (in Interner) Intern(text []byte) string {
	if known, isKnown := in[string(text)]; isKnown {
		return known
	}
	fresh := string(text)
	boundedMap[string, string](in).add(fresh, fresh)
	return fresh
}

// boundedMap is a map with at most maxEntries entries, if all are added with its method add.
type boundedMap[K comparable, V any] map[K]V

const maxEntries = 8192

// add adds a key that the map does not have. If the map is full, add removes a random entry.
func (m boundedMap[K, V]) add(key K, value V) {
	if len(m) >= maxEntries {
		for random := range m {
			delete(m, random)
			break
		}
	}
	m[key] = value
}
