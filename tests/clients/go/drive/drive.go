// Package drive makes a client take commands: lines of JSON on standard input, answered on
// standard output. They are those of python/driver.py.
package drive

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Target is where a client connects to: a command with its environment, or a URL with headers.
type Target struct {
	Command []string          `json:"command"`
	Env     map[string]string `json:"env"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// Environ is the environment as os/exec wants it.
func (t *Target) Environ() []string {
	var all []string
	for name, value := range t.Env {
		all = append(all, name+"="+value)
	}
	return all
}

// Client is one of the clients that are tried.
type Client interface {
	Open(ctx context.Context, target *Target) error
	Call(ctx context.Context, tool string, arguments map[string]any) (string, error)
	Close() error
}

type command struct {
	ID        int            `json:"id"`
	Do        string         `json:"do"`
	Target    Target         `json:"target"`
	Timeout   *float64       `json:"timeout"`
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
	Call      int            `json:"call"`
}

type driver struct {
	client  Client
	timeout time.Duration // 0: none
	lock    sync.Mutex    // of what follows, and of standard output
	cancels map[int]context.CancelFunc
}

func (d *driver) answer(value map[string]any) {
	d.lock.Lock()
	defer d.lock.Unlock()
	text, _ := json.Marshal(value)
	fmt.Println(string(text))
}

func (d *driver) call(one *command) (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	if d.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, d.timeout)
	}
	defer cancel()
	d.lock.Lock()
	d.cancels[one.ID] = cancel
	d.lock.Unlock()
	return d.client.Call(ctx, one.Tool, one.Arguments)
}

func (d *driver) obey(one *command) {
	answer := map[string]any{"id": one.ID}
	var err error
	switch one.Do {
	case "open":
		if one.Timeout != nil {
			d.timeout = time.Duration(*one.Timeout * float64(time.Second))
		}
		err = d.client.Open(context.Background(), &one.Target)
	case "call":
		answer["seen"], err = d.call(one)
	case "cancel":
		d.lock.Lock()
		d.cancels[one.Call]()
		d.lock.Unlock()
	case "close":
		troubles := []string{}
		if trouble := d.client.Close(); trouble != nil {
			troubles = append(troubles, trouble.Error())
		}
		answer["troubles"] = troubles
	}
	if err != nil {
		answer["error"] = err.Error()
	}
	d.answer(answer)
}

// Run obeys until standard input ends.
func Run(client Client) {
	d := &driver{client: client, cancels: map[int]context.CancelFunc{}}
	d.answer(map[string]any{"pid": os.Getpid()})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one command
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			panic(err)
		}
		go d.obey(&one)
	}
}
