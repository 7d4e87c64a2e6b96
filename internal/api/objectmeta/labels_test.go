package objectmeta

import (
	"strings"
	"testing"
)

// check is one of the package's checks, with texts that it accepts and refuses.
type check struct {
	function  func(string) error
	beginning string // of its errors, before the quoted text
	good, bad []string
}

func TestKeysValuesAndNamesAreChecked(t *testing.T) {
	letters := func(n int) string { return strings.Repeat("a", n) }
	longestName := strings.Repeat("abcdefg.", 31) + "abcde"
	for name, c := range map[string]check{
		"key": {
			CheckLabelKey, "label key ",
			[]string{"a", "A-b_c.9", letters(63), "x.io/a", longestName + "/" + letters(63)},
			[]string{
				"", "/", "/a", "a/", "a/b/c", letters(64), longestName + "f/a", "X.io/a", "x_y/a",
				"-a", "a.", "ä", "a b", "a\n",
			},
		},
		"value": {
			CheckLabelValue, "label value ",
			[]string{"", "a", "0", "A-b_c.9", letters(63)},
			[]string{letters(64), "-", "-a", "a_", ".a", "a/b", "ä", " ", "a\n"},
		},
		"DNS name": {
			CheckDNSName, "",
			[]string{"a", "0", "a-b.c-9", letters(63), letters(253), longestName},
			[]string{"", ".", "a.", ".a", "a..b", "-a", "a-", "a-.b", "A", "a_b", letters(254), longestName + "f", "a\n"},
		},
	} {
		for _, text := range c.good {
			if err := c.function(text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, text := range c.bad {
			err := c.function(text)
			if err == nil || !strings.HasPrefix(err.Error(), c.beginning+`"`) {
				t.Errorf("%s %q: %v", name, text, err)
			}
		}
	}
}
