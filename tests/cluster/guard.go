package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// cluster is what the guard and pid 1 are told on the command line.
type cluster struct {
	data    string // everything that the cluster writes; removed at its end
	state   string // what clusters of one machine share: who lives, and the sysctls as they were
	node    string
	address string
	cgroup  string
	keep    bool
}

func parse(name string) cluster {
	var c cluster
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.StringVar(&c.data, "data", "", "data directory")
	flags.StringVar(&c.state, "state", "", "directory shared by the clusters of this machine")
	flags.StringVar(&c.node, "node", "node-1", "name of the node")
	flags.StringVar(&c.address, "address", "10.99.0.1", "address of the node")
	flags.StringVar(&c.cgroup, "cgroup", "", "name of the cgroup that holds the pods")
	flags.BoolVar(&c.keep, "keep", false, "keep the data directory at the end")
	flags.Parse(os.Args[1:])
	return c
}

// guard stands outside the namespaces and lives exactly as long as somebody holds the other end of its standard input:
// then it ends pid 1, and with it every process, pod and mount inside, and puts back what is global. So a cluster ends with its owner,
// however that one ends.
func guard() error {
	runtime.LockOSThread() // the parent-death signal below is tied to this thread
	c := parse("guard")
	for _, covered := range []string{"/etc/", "/var/", "/run/", "/proc/", "/sys/"} {
		if strings.HasPrefix(c.data, covered) {
			return fmt.Errorf("the data directory %s lies below %s, which the cluster covers with its own: set MOORING_CACHE to another place", c.data, covered)
		}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	leave, err := enter(c)
	if err != nil {
		return err
	}
	defer leave()

	log, err := os.Create(filepath.Join(c.data, "log", "init.log"))
	if err != nil {
		return err
	}
	told, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	init := exec.Command("/proc/self/exe", append([]string{"init"}, os.Args[1:]...)...)
	init.Stdout, init.Stderr, init.ExtraFiles = log, log, []*os.File{tell}
	init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	if err := init.Start(); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- init.Wait() }()
	end := func() { init.Process.Kill(); <-ended }
	tell.Close()
	if line, _ := bufio.NewReader(told).ReadString('\n'); line != "ready\n" {
		end()
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("pid 1: %s", text)
	}
	err = serve(outsideSocket(c.data), func(r request, _ *stream) answer {
		if r.Op != "forward" {
			return answer{Error: "unknown request " + r.Op}
		}
		return forward(c.data, r.Target)
	})
	if err != nil {
		end()
		return err
	}
	fmt.Printf("ready %d\n", init.Process.Pid)

	released := make(chan struct{})
	go func() { io.Copy(io.Discard, os.Stdin); close(released) }()
	select {
	case <-released:
	case <-stop:
	case err := <-ended:
		return errors.Join(errors.New("pid 1 ended by itself"), err)
	}
	end()
	return nil
}
