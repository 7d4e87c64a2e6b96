package docs_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

var update = flag.Bool("update", false, "write pictures/peers.svg, and the table of endings in change/internals.md")

// pictureSession is the session that the picture shows. All contenders took part in it.
const pictureSession = "22 November 2026, build b829904"

// contender is a program in the picture peers.svg. All of them write the same total to the same label.
type contender struct {
	name, class, command string
}

var contenders = []contender{
	{"podcount", "own", totalDuel.podcount},
	{"client-go, metadata only", "peer", totalDuel.peer},
	{"client-go, whole pods", "peer", ownDuel.peer},
	{"controller-runtime", "peer", "peer-controller-runtime -kubeconfig KUBECONFIG"},
}

// The layout of the picture, in pixels.
const (
	pictureWidth = 760
	panelHeight  = 168
	barHeight    = 20
	barDistance  = 31
	barsLeft     = 230
	barsWidth    = 400
)

func TestPictureOfPeersShowsTheRecordedRuns(t *testing.T) {
	const file = "pictures/peers.svg"
	want := peersPicture(recordedSamples(t))
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WantEqual(t, file+", which `go test ./docs -update` writes,", testkit.ReadFile(t, file), want)
}

// peersPicture draws a panel of bars for each of the figures.
func peersPicture(samples []sample) string {
	var b strings.Builder
	height := panelHeight*len(startFigures) + 20
	fmt.Fprintf(&b, pictureHead, pictureWidth, height, pictureWidth-1, height-1)
	for i, f := range startFigures {
		fmt.Fprintf(&b, "<g transform=\"translate(0 %d)\">\n", 16+i*panelHeight)
		drawPanel(&b, samples, f)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawPanel draws a bar for each contender, as long as the median of this figure. A thin line shows the spread.
func drawPanel(b *strings.Builder, samples []sample, f figure) {
	fmt.Fprintf(b, "<text class=\"title\" x=\"24\" y=\"16\">%s</text>\n", f.name)
	longest := 0.0
	for _, c := range contenders {
		longest = max(longest, slices.Max(valuesOf(samples, c, f)))
	}
	pixels := func(value float64) float64 { return value / longest * barsWidth }
	for i, c := range contenders {
		values := valuesOf(samples, c, f)
		middle := median(values)
		top := 28 + i*barDistance
		lineY := top + barHeight/2
		lowest := barsLeft + pixels(slices.Min(values))
		highest := barsLeft + pixels(slices.Max(values))
		fmt.Fprintf(b, "<text class=\"name\" x=\"%d\" y=\"%d\">%s</text>\n", barsLeft-10, top+15, c.name)
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"3\"/>\n",
			c.class, barsLeft, top, pixels(middle), barHeight)
		fmt.Fprintf(b, "<path class=\"spread\" d=\"M%.1f %dH%.1f\"/>\n", lowest, lineY, highest)
		value := fmt.Sprintf(f.format, middle)
		fmt.Fprintf(b, "<text class=\"value\" x=\"%.1f\" y=\"%d\">%s</text>\n", highest+8, top+15, value)
	}
}

// valuesOf returns a figure of a contender's samples in the session.
func valuesOf(samples []sample, c contender, f figure) (values []float64) {
	for _, s := range samplesOf(samples, pictureSession, "start", c.command) {
		values = append(values, f.of(s))
	}
	return values
}

// pictureHead is the beginning of the picture. Its verbs are the width and the height of the picture and of its frame.
const pictureHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc">
<title id="title">podcount beside its peers</title>
<desc id="desc">Medians of the time until the label is right, the CPU time, the peak memory and the API server's CPU time,
for podcount, client-go with metadata only, client-go with whole pods, and controller-runtime, with 100,000 pods.</desc>
<style>
  text{font:17px system-ui,-apple-system,"Segoe UI","Helvetica Neue",Arial,sans-serif;fill:#17202b}
  .title{font-weight:700} .name{text-anchor:end} .value{font-variant-numeric:tabular-nums}
  .paper{fill:#ffffff;stroke:#d3dae4} .own{fill:#1d5fc2} .peer{fill:#c3ccd7;stroke:#66717f}
  .spread{stroke:#17202b;stroke-width:2px}
  @media (prefers-color-scheme: dark) {
    text{fill:#e8eef6} .paper{fill:#0f1620;stroke:#2b3746} .own{fill:#82b4ff} .peer{fill:#33404f;stroke:#8e9cad}
    .spread{stroke:#e8eef6}
  }
</style>
<rect class="paper" x=".5" y=".5" width="%[3]d" height="%[4]d" rx="12"/>
`
