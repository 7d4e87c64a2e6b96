package objectmeta

import (
	"fmt"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// testKeys are the keys of the labels that the Packers of the tests keep.
var testKeys = []string{"app", "run", ""}

// object has the fields of an object in the namespace ns, with the uid u.
type object struct {
	name, version string
	labels        map[string]string
}

func (o object) fields() Fields {
	fields := Fields{
		Namespace:       []byte("ns"),
		Name:            []byte(o.name),
		UID:             []byte("u"),
		ResourceVersion: []byte(o.version),
	}
	for _, key := range testKeys {
		value, isPresent := o.labels[key]
		fields.Labels = append(fields.Labels, Label{IsPresent: isPresent, Value: []byte(value)})
	}
	return fields
}

type labels = map[string]string

// labelsOf returns all labels of an object whose keys are among testKeys.
func labelsOf(m Metadata) labels {
	all := labels{}
	for _, key := range testKeys {
		if value, ok := m.Label(key); ok {
			all[key] = value
		}
	}
	return all
}

// keep packs an object that must be valid.
func keep(t testing.TB, p *Packer, o object) *Metadata {
	t.Helper()
	draft, err := p.Pack(o.fields())
	if err != nil {
		t.Fatal(err)
	}
	kept := draft.Keep()
	return &kept
}

func TestMetadataHasWhatWasPacked(t *testing.T) {
	p := NewPacker(testKeys)
	for _, row := range []struct {
		name       string
		fields     Fields
		wantName   string
		wantLabels labels
	}{
		{"an object in a namespace", object{"a", "7", nil}.fields(), "ns/a", labels{}},
		{
			"a cluster-scoped object",
			Fields{Name: []byte("a"), UID: []byte("u"), ResourceVersion: []byte("7")},
			"a",
			labels{},
		},
		{"one label", object{"b", "7", labels{"run": "r"}}.fields(), "ns/b", labels{"run": "r"}},
		{"the same label again", object{"c", "7", labels{"run": "r"}}.fields(), "ns/c", labels{"run": "r"}},
		{"an empty label", object{"d", "7", labels{"run": ""}}.fields(), "ns/d", labels{"run": ""}},
		{"an empty key", object{"e", "7", labels{"": "x"}}.fields(), "ns/e", labels{"": "x"}},
		{
			"all labels, with the mark of a label in a value",
			object{"f", "7", labels{"app": "=", "run": "", "": "=x="}}.fields(),
			"ns/f",
			labels{"app": "=", "run": "", "": "=x="},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			draft, err := p.Pack(row.fields)
			if err != nil {
				t.Fatal(err)
			}
			m := draft.Keep()
			testkit.WantEqual(t, "name in the Draft", string(draft.NamespacedName()), row.wantName)
			testkit.WantEqual(t, "name", m.NamespacedName(), row.wantName)
			testkit.WantEqual(t, "uid", m.UID(), "u")
			testkit.WantEqual(t, "version", m.ResourceVersion(), "7")
			testkit.WantEqual(t, "labels", labelsOf(m), row.wantLabels)
			for _, key := range []string{"app", "run", "", "other"} {
				value, ok := m.Label(key)
				wantValue, wantOK := row.wantLabels[key]
				if value != wantValue || ok != wantOK {
					t.Errorf("label %q: got %q, %v, want %q, %v", key, value, ok, wantValue, wantOK)
				}
			}
		})
	}
}

func TestZeroMetadataIsEmpty(t *testing.T) {
	var m Metadata
	testkit.WantEqual(t, "name", m.NamespacedName(), "")
	testkit.WantEqual(t, "uid", m.UID(), "")
	testkit.WantEqual(t, "version", m.ResourceVersion(), "")
	testkit.WantEqual(t, "labels", labelsOf(m), labels{})
}

func TestLabelsOfSeveralObjectsAreShared(t *testing.T) {
	p := NewPacker(testKeys)
	first := keep(t, p, object{"a", "7", labels{"app": "web"}})
	firstAgain := keep(t, p, object{"a", "8", labels{"app": "web"}})
	second := keep(t, p, object{"b", "7", labels{"app": "web"}})
	third := keep(t, p, object{"c", "7", labels{"app": "web"}})
	unique := keep(t, p, object{"d", "7", labels{"run": "d", "app": ""}})
	bare := keep(t, p, object{"e", "7", nil})

	testkit.WantEqual(t, "text of the first", first.text, "ns/a\x00u\x007\x00=web\x00\x00")
	testkit.WantEqual(t, "text of its next version", firstAgain.text, "ns/a\x00u\x008\x00=web\x00\x00")
	testkit.WantEqual(t, "text of the second", second.text, "ns/b\x00u\x007")
	testkit.WantEqual(t, "text of the third", third.text, "ns/c\x00u\x007")
	testkit.WantEqual(t, "text of one with unique labels", unique.text, "ns/d\x00u\x007\x00=\x00=d\x00")
	if first.labels != unique.labels {
		t.Error("objects with labels in their texts have different labelSets")
	}
	if second.labels != third.labels || second.labels == first.labels {
		t.Error("objects with the same labels do not share them")
	}
	if bare.labels != nil {
		t.Error("an object without labels has a labelSet")
	}
}

func TestHasSameLabels(t *testing.T) {
	p := NewPacker(testKeys)
	web := labels{"app": "web"}
	unshared := keep(t, p, object{"a", "7", web})
	shared := keep(t, p, object{"b", "7", web})
	other := keep(t, p, object{"c", "7", labels{"app": "db"}})
	otherKey := keep(t, p, object{"d", "7", labels{"run": "web"}})
	none := keep(t, p, object{"e", "7", nil})
	ofAnotherPacker := keep(t, NewPacker(testKeys), object{"f", "7", web})
	ofOtherKeys := keep(t, NewPacker([]string{"x", "y", "z"}), object{"f", "7", web})
	for _, row := range []struct {
		name string
		a, b *Metadata
		want bool
	}{
		{"the same object", unshared, unshared, true},
		{"unshared and shared", unshared, shared, true},
		{"shared twice", shared, shared, true},
		{"of two Packers", ofAnotherPacker, shared, true},
		{"no labels", none, none, true},
		{"another value", shared, other, false},
		{"another value, both unshared", unshared, other, false},
		{"another key", shared, otherKey, false},
		{"none and one", none, unshared, false},
		{"of Packers with different keys", unshared, ofOtherKeys, false},
	} {
		if row.a.HasSameLabels(row.b) != row.want || row.b.HasSameLabels(row.a) != row.want {
			t.Errorf("%s: HasSameLabels is not %v", row.name, row.want)
		}
	}
}

func TestDraftEqualsOnlyTheSameVersion(t *testing.T) {
	p := NewPacker(testKeys)
	alone := labels{"app": "alone"}
	shared := labels{"app": "web"}
	keep(t, p, object{"the first of them", "7", shared})
	for _, o := range []object{{"a", "7", alone}, {"b", "7", shared}} {
		known := keep(t, p, o)
		for _, row := range []struct {
			name string
			now  object
			want bool
		}{
			{"the same object", o, true},
			{"another version", object{o.name, "8", o.labels}, false},
			{"another value", object{o.name, "7", labels{"app": "db"}}, false},
			{"another key", object{o.name, "7", labels{"run": "web"}}, false},
			{"no labels", object{o.name, "7", nil}, false},
		} {
			draft, err := p.Pack(row.now.fields())
			testkit.WantError(t, row.name, err, "")
			if draft.Equals(known) != row.want {
				t.Errorf("%s: %s: Equals is not %v", o.name, row.name, row.want)
			}
		}
	}
}

func TestPackingAKnownObjectAllocatesNothing(t *testing.T) {
	p := NewPacker(testKeys)
	shared := labels{"app": "web"}
	keep(t, p, object{"a", "7", shared})
	for _, o := range []object{
		{"b", "7", shared},
		{"c", "7", labels{"run": "c"}},
		{"d", "7", nil},
	} {
		known := keep(t, p, o)
		fields := o.fields()
		allocations := testing.AllocsPerRun(100, func() {
			draft, err := p.Pack(fields)
			if err != nil || !draft.Equals(known) {
				t.Fatalf("%s: got the error %v or another object, want the same one", o.name, err)
			}
		})
		testkit.WantNumber(t, "allocations for "+o.name, int(allocations), 0)
	}
}

func TestTextThatNoObjectCanHaveIsRefused(t *testing.T) {
	const badCharacter = "a name contains a slash, or a field contains a zero byte"
	for _, row := range []struct {
		name   string
		change func(*Fields)
		want   string
	}{
		{"nothing odd", func(*Fields) {}, ""},
		{"a zero byte in the namespace", func(f *Fields) { f.Namespace = []byte("n\x00s") }, badCharacter},
		{"a zero byte in the name", func(f *Fields) { f.Name = []byte("a\x00") }, badCharacter},
		{"a zero byte in the uid", func(f *Fields) { f.UID = []byte("\x00u") }, badCharacter},
		{"a zero byte in the version", func(f *Fields) { f.ResourceVersion = []byte("7\x00") }, badCharacter},
		{"a zero byte in a label", func(f *Fields) { f.Labels[0].Value = []byte("x\x00y") }, badCharacter},
		{
			"a zero byte in a label that is not present",
			func(f *Fields) { f.Labels[1].Value = []byte("\x00") },
			"",
		},
		{"a slash in the namespace", func(f *Fields) { f.Namespace = []byte("n/s") }, badCharacter},
		{"a slash in the name", func(f *Fields) { f.Name = []byte("a/b") }, badCharacter},
		{"a slash in a label", func(f *Fields) { f.Labels[0].Value = []byte("x/y") }, ""},
		{"a name that is not UTF-8", func(f *Fields) { f.Name = []byte("a\xff") }, badCharacter},
		{"a replacement character", func(f *Fields) { f.Name = []byte("a\uFFFD") }, badCharacter},
		{"a label that is not UTF-8", func(f *Fields) { f.Labels[0].Value = []byte("\xff") }, badCharacter},
		{"the longest namespace", func(f *Fields) { f.Namespace = long(63) }, ""},
		{"a longer namespace", func(f *Fields) { f.Namespace = long(64) }, "the namespace has 64 bytes; the limit is 63"},
		{"the longest name", func(f *Fields) { f.Name = long(253) }, ""},
		{"a longer name", func(f *Fields) { f.Name = long(254) }, "the name has 254 bytes; the limit is 253"},
		{"the longest uid", func(f *Fields) { f.UID = long(64) }, ""},
		{"a longer uid", func(f *Fields) { f.UID = long(65) }, "the uid has 65 bytes; the limit is 64"},
		{"the longest version", func(f *Fields) { f.ResourceVersion = long(64) }, ""},
		{
			"a longer version",
			func(f *Fields) { f.ResourceVersion = long(65) },
			"the resourceVersion has 65 bytes; the limit is 64",
		},
		{"the longest label", func(f *Fields) { f.Labels[0].Value = long(63) }, ""},
		{
			"a longer label",
			func(f *Fields) { f.Labels[0].Value = long(64) },
			"the value of a label has 64 bytes; the limit is 63",
		},
		{"a longer label that is not present", func(f *Fields) { f.Labels[1].Value = long(64) }, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := NewPacker(testKeys)
			fields := object{"a", "7", labels{"app": "x"}}.fields()
			row.change(&fields)
			_, err := p.Pack(fields)
			testkit.WantError(t, "first", err, row.want)

			// The result is the same for the second object with the labels, which would share them.
			fields.Name[0] = 'b'
			_, err = p.Pack(fields)
			testkit.WantError(t, "second", err, row.want)
		})
	}
}

// long returns a text of n bytes.
func long(n int) []byte { return []byte(strings.Repeat("l", n)) }

func TestPackerForgetsLabels(t *testing.T) {
	p := NewPacker(testKeys)
	for range 2 {
		for i := range 3 * maxEntries {
			o := object{fmt.Sprint("p", i), "7", labels{"app": fmt.Sprint("a", i/2)}}
			testkit.WantEqual(t, "labels", labelsOf(*keep(t, p, o)), o.labels)
		}
	}
	testkit.WantBetween(t, "shared labels", len(p.shared), 1, maxEntries)
	testkit.WantBetween(t, "labels with one owner", len(p.owners), 0, maxEntries)
}
