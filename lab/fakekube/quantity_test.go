package fakekube

import "testing"

func TestQuantitiesUseTheLargestUnit(t *testing.T) {
	for sent, want := range map[string]string{
		"0.5":           "500m",
		"1000m":         "1",
		"1500":          "1500",
		"2000k":         "2M",
		"-1.5":          "-1500m",
		"0.0000000001":  "1n",
		"1024Mi":        "1Gi",
		"1.5Gi":         "1536Mi",
		"0.5Ki":         "512",
		"1.1Ki":         "1126400m",
		"0Gi":           "0",
		"1e4":           "10e3",
		"1000e3":        "1e6",
		"9007199254740": "9007199254740",
	} {
		got, err := parseQuantity(sent)
		if err != nil || got.String() != want {
			t.Errorf("%s is shown as %s (%v), want %s", sent, got, err, want)
		}
	}
}

func TestInvalidQuantityIsRefused(t *testing.T) {
	for sent, want := range map[string]error{
		"":             errQuantity,
		".":            errQuantity,
		"1.2.3":        errQuantity,
		"1x":           errQuantity,
		"1K":           errQuantitySuffix,
		"1e":           errQuantitySuffix,
		"1e9999999999": errQuantitySuffix, // would need too much memory
	} {
		if got, err := parseQuantity(sent); err != want {
			t.Errorf("%q is %s (%v), want %v", sent, got, err, want)
		}
	}
}
