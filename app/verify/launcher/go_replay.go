package PACKAGE

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"time"
)

type ZZT struct {
	text   string
	failed bool
}

type ZZEnd struct{}

type ZZKept struct {
	value  interface{}
	before string
}

var ZZGivenValues []ZZKept

var ZZOther bool

func ZZText(text string) string {
	if ZZOther {
		return "?"
	}
	return text
}

func ZZGiven[V any](value V) V {
	if reflect.ValueOf(value).Len() > 0 {
		ZZGivenValues = append(ZZGivenValues, ZZKept{value, fmt.Sprintf("%#v", value)})
	}
	return value
}

func (t *ZZT) Fail()   { t.failed = true }
func (t *ZZT) Helper() {}
func (t *ZZT) Error(given ...interface{}) {
	t.failed, t.text = true, fmt.Sprint(given...)
}
func (t *ZZT) Errorf(form string, given ...interface{}) {
	t.failed, t.text = true, fmt.Sprintf(form, given...)
}
func (t *ZZT) FailNow() {
	t.failed = true
	panic(ZZEnd{})
}
func (t *ZZT) Fatal(given ...interface{}) {
	t.Error(given...)
	t.FailNow()
}
func (t *ZZT) Fatalf(form string, given ...interface{}) {
	t.Errorf(form, given...)
	t.FailNow()
}
func (t *ZZT) Failed() bool                     { return t.failed }
func (t *ZZT) Log(...interface{})               {}
func (t *ZZT) Logf(string, ...interface{})      {}
func (t *ZZT) Run(_ string, part func(*ZZT)) bool {
	part(t)
	return !t.failed
}

func zzCall(test func(*ZZT)) (kind, text string) {
	t := &ZZT{}
	ZZGivenValues = nil
	defer func() {
		found := recover()
		if _, ended := found.(ZZEnd); found != nil && !ended {
			kind, text = "panic", fmt.Sprint(found)
		} else if t.failed {
			kind, text = "AssertionError", t.text
		}
	}()
	test(t)
	return
}

func zzSay(parts ...string) {
	line, _ := json.Marshal(parts)
	fmt.Printf("\nTOKEN%s\n", line)
}

func ZZReplay() {
	names := []string{NAMES}
	tests := []func(*ZZT){TESTS}
	before := runtime.NumGoroutine()
	failed := make([][2]string, len(tests))
	for at, test := range tests {
		kind, text := zzCall(test)
		zzSay("result", names[at], "plain", kind, text)
		changed := ""
		for _, one := range ZZGivenValues {
			if fmt.Sprintf("%#v", one.value) != one.before {
				changed = "changed"
			}
		}
		if ZZGivenValues != nil {
			zzSay("result", names[at], "arguments", changed, "an argument became another")
		}
	}
	end := time.Now().Add(SECONDS * time.Millisecond)
	for round := 0; round < ROUNDS && time.Now().Before(end); round++ {
		for at, test := range tests {
			if kind, text := zzCall(test); kind != "" && failed[at][0] == "" {
				failed[at] = [2]string{kind, text}
			}
		}
	}
	for at, name := range names {
		zzSay("result", name, "many", failed[at][0], failed[at][1])
	}
	ZZOther = true
	for at, test := range tests {
		kind, _ := zzCall(test)
		problem := map[bool]string{true: "panics"}[kind == "panic"]
		zzSay("result", names[at], "varied", problem, fmt.Sprintf(`{"a text of one character": %q}`, problem))
	}
	time.Sleep(50 * time.Millisecond)
	if runtime.NumGoroutine() > before {
		zzSay("result", names[0], "process", "changed", "[\"goroutines\"]")
	}
}
