// The flat door from Go: payments that happen once. docs/c-api.md tells how to build and run it.
package main

/*
#cgo pkg-config: semel
#include <semel/flat.h>
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime/cgo"
	"syscall"
	"unsafe"
)

type object = map[string]any

// Answer has the members that this program reads. Only a problem has a code.
type Answer struct {
	Verdict, Claim, Code, Message string
	Advice                        string `json:"corrective_action"`
	Outcome                       struct{ Value string }
}

func (a Answer) String() string {
	if a.Code != "" {
		return a.Code + ": " + a.Message + " " + a.Advice
	}
	return a.Verdict + ", " + a.Outcome.Value
}

// Ledger is an open ledger. Any number of goroutines may use it.
type Ledger struct {
	flat  *C.semel_flat
	ready *os.File      // readable while there are answers to take
	ended chan struct{} // closed when take has ended
}

func open(options object) (*Ledger, error) {
	var problem *C.char
	text, n := encode(options)
	flat := C.semel_flat_open(text, n, &problem)
	if flat == nil {
		return nil, fmt.Errorf("%s", decode(problem))
	}
	// The descriptor is the library's. Go gets a duplicate, which it may close.
	fd, err := syscall.Dup(int(C.semel_flat_fd(flat)))
	if err != nil {
		C.semel_flat_close(flat)
		return nil, err
	}
	l := &Ledger{flat, os.NewFile(uintptr(fd), "answers"), make(chan struct{})}
	go l.take()
	return l, nil
}

// close ends the ledger. All answers must have come.
func (l *Ledger) close() {
	l.ready.Close()
	<-l.ended
	C.semel_flat_close(l.flat)
}

// submit hands in a request. A goroutine that waits for the answer holds no thread.
func (l *Ledger) submit(request object) <-chan Answer {
	answer := make(chan Answer, 1)
	tag := cgo.NewHandle(answer)
	if text, n := encode(request); !C.semel_flat_submit(l.flat, C.uint64_t(tag), text, n) {
		tag.Delete()
		answer <- Answer{Code: "NOT_SUBMITTED", Message: "There is no memory for the request."}
	}
	return answer
}

// take passes answers on. Go's poller calls the inner function when the descriptor is readable.
func (l *Ledger) take() {
	defer close(l.ended)
	conn, _ := l.ready.SyscallConn() // fails without a file only
	conn.Read(func(uintptr) bool {
		for {
			var tag C.uint64_t
			text := C.semel_flat_take(l.flat, &tag, nil)
			if text == nil {
				return false // wait for more
			}
			cgo.Handle(tag).Value().(chan Answer) <- decode(text)
			cgo.Handle(tag).Delete()
		}
	})
}

func encode(o object) (*C.char, C.size_t) {
	text, _ := json.Marshal(o) // an object of texts and numbers always has a text
	return (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text))
}

func decode(text *C.char) (a Answer) {
	defer C.semel_flat_free(text)
	if err := json.Unmarshal([]byte(C.GoString(text)), &a); err != nil {
		a = Answer{Code: "NOT_UNDERSTOOD", Message: err.Error()}
	}
	return a
}

// begin asks whether to pay. The key is the order, so another amount for it is refused.
func begin(order string, amount int) object {
	return object{"op": "begin", "scope": "shop", "tool": "pay", "key": order,
		"args": object{"amount": amount}, "wait_ms": 60000}
}

// once does the work, unless it is done.
func (l *Ledger) once(order string, amount int, work func() string) {
	a := <-l.submit(begin(order, amount))
	if a.Verdict == "execute" {
		a = <-l.submit(object{"op": "commit", "claim": a.Claim, "kind": "success", "value": work()})
	}
	fmt.Printf("%s: %s\n", order, a)
}

func main() {
	// Many who ask for one order are not an agent in a loop.
	l, err := open(object{"url": "sqlite:" + os.Args[1],
		"contract": "version: 1\ntools:\n  pay: { class: irreversible, window: forever, loop: off }\n"})
	if err != nil {
		log.Fatal(err)
	}
	defer l.close()
	payments, others, replays := 0, []<-chan Answer{}, 0
	pay := func() string { payments++; return fmt.Sprint("receipt ", payments) }
	l.once("order-1", 100, pay)
	l.once("order-1", 100, pay)
	l.once("order-1", 999, pay)
	l.once("order-2", 500, func() string {
		for len(others) < 100 { // ask while it is being paid
			others = append(others, l.submit(begin("order-2", 500)))
		}
		return pay()
	})
	for _, answer := range others {
		if a := <-answer; a.Verdict == "replay" {
			replays++
		}
	}
	fmt.Printf("%d payments; %d asked meanwhile, %d replays\n", payments, len(others), replays)
}
