package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"
)

// The namespaces have no way out. What lets a person's kubectl, browser and MCP client in is a pair: a listener on the
// loopback address outside, its twin inside, and between them a Unix socket in the data directory, because a socket
// with a path crosses network namespaces.

// request is the first line of every connection to the guard or to pid 1; answer is the line that comes back.
type request struct {
	Op     string   `json:"op"`
	Node   string   `json:"node"`   // forward: whose pid 1 dials
	Target string   `json:"target"` // dial, forward: an address inside
	Name   string   `json:"name"`   // start, signal, state: a process
	Argv   []string `json:"argv"`   // start
	Log    string   `json:"log"`    // start: where its output is appended
	Signal int      `json:"signal"` // signal
	Wait   bool     `json:"wait"`   // signal: answer once the process has ended
}

type answer struct {
	Error   string `json:"error,omitempty"`
	Address string `json:"address,omitempty"`
	Pid     int    `json:"pid,omitempty"`
	Running bool   `json:"running,omitempty"`
}

func insideSocket(data, node string) string { return filepath.Join(data, "run", node+".sock") }
func outsideSocket(data string) string      { return filepath.Join(data, "run", "guard.sock") }

// serve answers requests on a Unix socket, one for each connection, until the process ends.
func serve(path string, handle func(request, *stream) answer) error {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				s := &stream{Conn: conn, reader: bufio.NewReader(conn)}
				var r request
				line, err := s.reader.ReadBytes('\n')
				if err == nil {
					err = json.Unmarshal(line, &r)
				}
				if err != nil {
					s.answer(answer{Error: err.Error()})
					return
				}
				if a := handle(r, s); a != (answer{}) || r.Op != "dial" {
					s.answer(a)
				}
			}()
		}
	}()
	return nil
}

// stream is a connection of which a line was read through a buffer.
type stream struct {
	net.Conn
	reader *bufio.Reader
}

func (s *stream) answer(a answer) {
	line, _ := json.Marshal(a)
	s.Write(append(line, '\n'))
}

// dial is the inner half: it connects to an address inside and joins the two connections.
func dial(target string, s *stream) answer {
	conn, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		return answer{Error: err.Error()}
	}
	s.answer(answer{})
	join(s.Conn, s.reader, conn, conn)
	return answer{}
}

// forward is the outer half: it listens on a free port and brings each connection to target, by way of the pid 1 at inside.
func forward(inside, target string) answer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return answer{Error: err.Error()}
	}
	go func() {
		for {
			outer, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				inner, err := net.Dial("unix", inside)
				if err != nil {
					outer.Close()
					return
				}
				line, _ := json.Marshal(request{Op: "dial", Target: target})
				inner.Write(append(line, '\n'))
				reader := bufio.NewReader(inner)
				var a answer
				if line, err = reader.ReadBytes('\n'); err != nil || json.Unmarshal(line, &a) != nil || a.Error != "" {
					// A reset and not an end: the caller sees what it would see inside.
					outer.(*net.TCPConn).SetLinger(0)
					outer.Close()
					inner.Close()
					return
				}
				join(outer, outer, inner, reader)
			}()
		}
	}()
	return answer{Address: listener.Addr().String()}
}

// join copies both ways until both ends are done; the end of one direction is passed on as a half-close. Bytes that wait
// in a buffer go first, the rest moves inside the kernel.
func join(a net.Conn, fromA io.Reader, b net.Conn, fromB io.Reader) {
	defer a.Close()
	defer b.Close()
	var both sync.WaitGroup
	pump := func(to, source net.Conn, from io.Reader) {
		if buffered, ok := from.(*bufio.Reader); ok {
			if n := buffered.Buffered(); n > 0 {
				first, _ := buffered.Peek(n)
				if _, err := to.Write(first); err != nil {
					return
				}
			}
		}
		if _, err := io.Copy(to, source); err != nil {
			a.Close()
			b.Close()
			return
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
	}
	both.Go(func() { pump(b, a, fromA) })
	both.Go(func() { pump(a, b, fromB) })
	both.Wait()
}
