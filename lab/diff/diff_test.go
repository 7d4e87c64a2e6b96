package diff

import "testing"

func TestUnifiedTurnsOneTextIntoTheOther(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing", "a\nb\n", "a\nb\n", ""},
		{"all is new", "", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"nothing is left", "a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"},
		{"near each other", "a\n1\n2\n3\n4\n5\n6\nb\n", "A\n1\n2\n3\n4\n5\n6\nB\n",
			"@@ -1,8 +1,8 @@\n-a\n+A\n 1\n 2\n 3\n 4\n 5\n 6\n-b\n+B\n"},
		{"one line", "a\nb\nc\n", "a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		{"far apart", "a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n",
			"@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+B\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Unified(c.old, c.new); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}
