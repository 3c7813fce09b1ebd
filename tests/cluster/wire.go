package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The nodes hang on one bridge, in a network namespace that holds nothing else: what passes between two nodes is filtered by
// those two alone, and nothing leads out.

// plugged is the descriptor under which pid 1 has the bridge's namespace.
const plugged = 4

// wire makes the bridge. It lasts as long as somebody holds the file.
func wire() (*os.File, error) {
	type made struct {
		file *os.File
		err  error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlocked, so the thread ends here and takes nobody else into its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- made{err: fmt.Errorf("a namespace for the bridge: %w", err)}
			return
		}
		if err := ip("link add nodes type bridge", "link set nodes up"); err != nil {
			done <- made{err: err}
			return
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		done <- made{file, err}
	}()
	m := <-done
	return m.file, m.err
}

// network plugs a node to the bridge, and leads what is for the pods of another node there. The default route goes to an address
// that nobody has: kube-proxy and the kubelet want one.
func network(c cluster, self node) error {
	wire := fmt.Sprintf("/proc/1/fd/%d", plugged)
	gateway := self.address[:strings.LastIndex(self.address, ".")] + ".254"
	lines := []string{
		"link set lo up",
		"link add node0 type veth peer name " + self.name + " netns " + wire,
		"addr add " + self.address + "/24 dev node0",
		"link set node0 up",
		"route add default via " + gateway + " dev node0",
	}
	for _, other := range c.nodes {
		if other != self {
			lines = append(lines, "route add "+other.pods+" via "+other.address+" dev node0")
		}
	}
	if err := ip(lines...); err != nil {
		return err
	}
	if err := tool("nsenter", "--net="+wire, "ip", "link", "set", self.name, "master", "nodes", "up"); err != nil {
		return err
	}
	// The second one exists only where the bridge module is loaded; without it the bridge's traffic is not filtered.
	os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0o644)
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// ip runs these lines of the program of that name.
func ip(lines ...string) error {
	for _, line := range lines {
		if err := tool("ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

func tool(program string, arguments ...string) error {
	if out, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %s %w", program, strings.Join(arguments, " "), out, err)
	}
	return nil
}
