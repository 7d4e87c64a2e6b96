package browser

import (
	"fmt"
	"strings"
)

// keyCodes are the codes of the keys that have names. The names are those of KeyboardEvent.key.
var keyCodes = map[string]int{
	"Backspace":  8,
	"Tab":        9,
	"Enter":      13,
	"Escape":     27,
	" ":          32,
	"PageUp":     33,
	"PageDown":   34,
	"End":        35,
	"Home":       36,
	"ArrowLeft":  37,
	"ArrowUp":    38,
	"ArrowRight": 39,
	"ArrowDown":  40,
	"Delete":     46,
}

// shift is the bit of the Shift key among an event's modifiers.
const shift = 8

// Press presses a key and lets it go. The key is a character, or a name as in KeyboardEvent.key, such as Tab or
// ArrowLeft; Space stands for a blank. Shift+ may stand before it.
func (tab *Tab) Press(key string) {
	tab.t.Helper()
	event := object{"type": "keyDown"}
	if rest, ok := strings.CutPrefix(key, "Shift+"); ok {
		key = rest
		event["modifiers"] = shift
	}
	if key == "Space" {
		key = " "
	}
	event["key"] = key
	event["windowsVirtualKeyCode"] = codeOf(key)
	if code := codeOf(key); code == 0 {
		tab.t.Fatalf("no key has the name %q", key)
	}
	switch {
	case key == "Enter":
		event["text"] = "\r"
	case len([]rune(key)) == 1:
		event["text"] = key
	}
	tab.call("Input.dispatchKeyEvent", event, nil)
	event["type"] = "keyUp"
	delete(event, "text")
	tab.call("Input.dispatchKeyEvent", event, nil)
}

// codeOf returns the code of a key, or 0 if there is no such key.
func codeOf(key string) int {
	if code, ok := keyCodes[key]; ok {
		return code
	}
	if runes := []rune(strings.ToUpper(key)); len(runes) == 1 {
		return int(runes[0])
	}
	return 0
}

// clickScript finds the middle of an element, after it has scrolled it into view. It refuses an element that is not
// there, has no size, or is covered by another.
const clickScript = `(() => {
  const element = document.querySelector(%s);
  if (!element) return {problem: "there is no such element"};
  element.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height) return {problem: "it has no size: is it hidden?"};
  const x = box.x + box.width / 2;
  const y = box.y + box.height / 2;
  const top = document.elementFromPoint(x, y);
  if (!top || !element.contains(top)) {
    return {problem: "it is covered by " + (top?.outerHTML.slice(0, 200) ?? "nothing")};
  }
  return {x, y, problem: ""};
})()`

// Click clicks the middle of the first element that a CSS selector names, with the mouse.
func (tab *Tab) Click(selector string) {
	tab.t.Helper()
	type point struct {
		X, Y    float64
		Problem string
	}
	at := Value[point](tab, fmt.Sprintf(clickScript, quote(selector)))
	if at.Problem != "" {
		tab.fail("cannot click %s: %s", selector, at.Problem)
	}
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		event := object{"type": kind, "x": at.X, "y": at.Y}
		if kind != "mouseMoved" {
			event["button"] = "left"
			event["clickCount"] = 1
		}
		tab.call("Input.dispatchMouseEvent", event, nil)
	}
}
