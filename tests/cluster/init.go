package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pid1 is the first process inside: it lays the private mounts and the network, starts and stops the components as it is
// told, and is the inner half of the relay. When it ends, the kernel ends everything else inside.
func pid1() error {
	name := os.Args[1]
	os.Args = os.Args[1:]
	c := parse()
	at := slices.IndexFunc(c.nodes, func(n node) bool { return n.name == name })
	if at < 0 {
		return errors.New("there is no node " + name)
	}
	self := c.nodes[at]
	told := os.NewFile(3, "told")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(plugged)
	if err := mounts(c, self); err != nil {
		return err
	}
	if err := network(c, self); err != nil {
		return err
	}
	processes := &processes{running: map[string]*process{}, byPid: map[int]*process{}}
	go processes.reap()
	err := serve(insideSocket(c.data, name), func(r request, s *stream) answer {
		switch r.Op {
		case "dial":
			return dial(r.Target, s)
		case "start":
			return processes.start(r)
		case "signal":
			return processes.signal(r)
		case "state":
			return answer{Running: processes.alive(r.Name)}
		}
		return answer{Error: "unknown request " + r.Op}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(told, "ready")
	told.Close()
	select {}
}

// mounts makes private what the kubelet, CNI and containerd write to at fixed places, so that the machine stays clean.
func mounts(c cluster, self node) error {
	// First cut the ties to the machine's mounts, then share below here: volumes must reach the containers.
	for _, flags := range []uintptr{unix.MS_REC | unix.MS_PRIVATE, unix.MS_REC | unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", flags, ""); err != nil {
			return fmt.Errorf("mount propagation: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, name := range []string{"etc", "var"} {
		upper, work := filepath.Join(c.folder(self), "over", name), filepath.Join(c.folder(self), "work", name)
		for _, path := range []string{upper, work} {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
		}
		options := fmt.Sprintf("lowerdir=/%s,upperdir=%s,workdir=%s", name, upper, work)
		if err := unix.Mount("overlay", "/"+name, "overlay", 0, options); err != nil {
			return fmt.Errorf("overlay on /%s: %w", name, err)
		}
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("tmpfs on /run: %w", err)
	}
	if err := os.MkdirAll("/run/containerd", 0o755); err != nil {
		return err
	}
	hosts := "127.0.0.1 localhost\n"
	for _, n := range c.nodes {
		hosts += n.address + " " + n.name + "\n"
	}
	os.Remove("/etc/resolv.conf") // often a link to a file that this /run does not have
	files := map[string]string{
		"/etc/resolv.conf": "nameserver 10.96.0.10\n",
		"/etc/hosts":       hosts,
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return unix.Sethostname([]byte(self.name))
}

// processes are the components that were started, by name. One loop waits for every child, because what containerd leaves
// behind becomes a child of pid 1 too.
type processes struct {
	sync.Mutex
	running map[string]*process
	byPid   map[int]*process
}

type process struct {
	name  string
	pid   int
	ended chan struct{}
}

func (p *processes) start(r request) answer {
	path, err := os.Executable()
	if _, ours := components[r.Argv[0]]; !ours {
		path, err = exec.LookPath(r.Argv[0])
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	log, err := os.OpenFile(r.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer null.Close()
	p.Lock()
	defer p.Unlock()
	if _, twice := p.running[r.Name]; twice {
		return answer{Error: r.Name + " runs already"}
	}
	pid, err := syscall.ForkExec(path, r.Argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}, // no proxy or other setting of the machine gets inside
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return answer{Error: err.Error()}
	}
	started := &process{name: r.Name, pid: pid, ended: make(chan struct{})}
	p.running[r.Name], p.byPid[pid] = started, started
	return answer{Pid: pid}
}

func (p *processes) signal(r request) answer {
	p.Lock()
	target, found := p.running[r.Name]
	if found {
		// Under the lock the pid is still the process's own, because only reap gives it back.
		syscall.Kill(target.pid, syscall.Signal(r.Signal))
	}
	p.Unlock()
	if !found {
		return answer{Error: r.Name + " does not run"}
	}
	if r.Wait {
		<-target.ended
	}
	return answer{}
}

func (p *processes) alive(name string) bool {
	p.Lock()
	defer p.Unlock()
	_, found := p.running[name]
	return found
}

func (p *processes) reap() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for range children {
		p.Lock()
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == syscall.EINTR {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			if ended, ours := p.byPid[pid]; ours {
				delete(p.byPid, pid)
				delete(p.running, ended.name)
				close(ended.ended)
			}
		}
		p.Unlock()
	}
}
