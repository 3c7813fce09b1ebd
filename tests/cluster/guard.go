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
	data   string // everything that the cluster writes; removed at its end
	state  string // what clusters of one machine share: who lives, and the sysctls as they were
	nodes  []node
	cgroup string // holds the cgroups of the nodes; none without it
	keep   bool
}

// node is a machine of the cluster: a pid 1 with namespaces of its own, and a folder of its own in the data directory.
type node struct {
	name    string
	address string
	pods    string // the addresses of its pods
}

func (c cluster) folder(n node) string { return filepath.Join(c.data, n.name) }

func parse() cluster {
	var c cluster
	flags := flag.NewFlagSet("cluster", flag.ExitOnError)
	flags.StringVar(&c.data, "data", "", "data directory")
	flags.StringVar(&c.state, "state", "", "directory shared by the clusters of this machine")
	flags.StringVar(&c.cgroup, "cgroup", "", "name of the cgroup that holds the pods")
	flags.BoolVar(&c.keep, "keep", false, "keep the data directory at the end")
	flags.Func("node", "a node: its name, its address and the network of its pods, with commas between", func(text string) error {
		part := strings.Split(text, ",")
		if len(part) != 3 {
			return errors.New("not name,address,network")
		}
		c.nodes = append(c.nodes, node{name: part[0], address: part[1], pods: part[2]})
		return nil
	})
	flags.Parse(os.Args[1:])
	return c
}

// guard stands outside the namespaces and lives exactly as long as somebody holds the other end of its standard input:
// then it ends the first process of each node, and with it every process, pod and mount inside, and puts back what is global. So a cluster
// ends with its owner, however that one ends.
func guard() error {
	runtime.LockOSThread() // the parent-death signal below is tied to this thread
	c := parse()
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

	plug, err := wire()
	if err != nil {
		return err
	}
	ended := make(chan error, len(c.nodes))
	var machines []*machine
	end := func() {
		for _, m := range machines {
			m.init.Process.Kill()
		}
		for range machines {
			<-ended
		}
	}
	for _, n := range c.nodes {
		m, err := power(c, n, plug)
		if err != nil {
			end()
			return err
		}
		machines = append(machines, m)
		go func() { ended <- m.init.Wait() }()
	}
	said := "ready"
	for _, m := range machines {
		if err := m.ready(); err != nil {
			end()
			return err
		}
		said += fmt.Sprintf(" %d", m.init.Process.Pid)
	}
	err = serve(outsideSocket(c.data), func(r request, _ *stream) answer {
		if r.Op != "forward" {
			return answer{Error: "unknown request " + r.Op}
		}
		return forward(insideSocket(c.data, r.Node), r.Target)
	})
	if err != nil {
		end()
		return err
	}
	fmt.Println(said)

	released := make(chan struct{})
	go func() { io.Copy(io.Discard, os.Stdin); close(released) }()
	select {
	case <-released:
	case <-stop:
	case err := <-ended:
		ended <- err // whom end waits for, too
		err = errors.Join(errors.New("pid 1 of a node ended by itself"), err)
		end()
		return err
	}
	end()
	return nil
}

// machine is a node as the guard holds it.
type machine struct {
	init *exec.Cmd
	log  string
	told *os.File
}

// power starts the first process of a node in namespaces of its own.
func power(c cluster, n node, plug *os.File) (*machine, error) {
	log, err := os.Create(filepath.Join(c.data, "log", "init-"+n.name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	told, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer tell.Close()
	init := exec.Command("/proc/self/exe", append([]string{"init", n.name}, os.Args[1:]...)...)
	init.Stdout, init.Stderr, init.ExtraFiles = log, log, []*os.File{tell, plug}
	init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	if err := init.Start(); err != nil {
		told.Close()
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	return &machine{init: init, log: log.Name(), told: told}, nil
}

// ready waits until pid 1 has said so.
func (m *machine) ready() error {
	defer m.told.Close()
	if line, _ := bufio.NewReader(m.told).ReadString('\n'); line != "ready\n" {
		text, _ := os.ReadFile(m.log)
		return fmt.Errorf("pid 1: %s", text)
	}
	return nil
}
