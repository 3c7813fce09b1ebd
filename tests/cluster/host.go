package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What a cluster changes outside its namespaces: three sysctls that the kubelet sets for the whole machine, and cgroups. Clusters that run side by
// side share the sysctls: the first saves them, the last puts them back. What an unclean end left behind is cleared by the next start.

var sysctls = []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"}

// owner is the note that a living cluster leaves in the state directory. The guard holds a lock on it, so a note without a
// lock belongs to a cluster that died.
type owner struct {
	Data   string `json:"data"`
	Cgroup string `json:"cgroup"`
}

// enter registers the cluster and returns what undoes it.
func enter(c cluster) (leave func(), err error) {
	owners := filepath.Join(c.state, "owners")
	if err := os.MkdirAll(owners, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(c.state, "lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer unlock()
	living, err := sweep(owners)
	if err != nil {
		return nil, err
	}
	saved := filepath.Join(c.state, "sysctls.json")
	if living == 0 {
		restore(saved)
		if err := save(saved); err != nil {
			return nil, err
		}
	}
	note := filepath.Join(owners, filepath.Base(c.data))
	text, _ := json.Marshal(owner{Data: c.data, Cgroup: c.cgroup})
	if err := os.WriteFile(note, text, 0o644); err != nil {
		return nil, err
	}
	release, err := lock(note, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	if err := makeCgroups(c); err != nil {
		release()
		os.Remove(note)
		return nil, err
	}
	return func() {
		if unlock, err := lock(filepath.Join(c.state, "lock"), unix.LOCK_EX); err == nil {
			defer unlock()
		}
		removeCgroups(c.cgroup)
		if !c.keep {
			os.RemoveAll(c.data)
		}
		release()
		os.Remove(note)
		if living, err := sweep(owners); err == nil && living == 0 {
			restore(saved)
		}
	}, nil
}

func lock(path string, how int) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), how); err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}

// sweep counts the living clusters and clears what dead ones left.
func sweep(owners string) (living int, err error) {
	entries, err := os.ReadDir(owners)
	for _, entry := range entries {
		note := filepath.Join(owners, entry.Name())
		unlock, err := lock(note, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			living++
			continue
		}
		var dead owner
		if text, err := os.ReadFile(note); err == nil && json.Unmarshal(text, &dead) == nil && dead.Data != "" {
			removeCgroups(dead.Cgroup)
			os.RemoveAll(dead.Data)
		}
		os.Remove(note)
		unlock()
	}
	return living, err
}

func save(path string) error {
	values := map[string]string{}
	for _, name := range sysctls {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return err
		}
		values[name] = strings.TrimSpace(string(value))
	}
	text, _ := json.Marshal(values)
	return os.WriteFile(path, text, 0o644)
}

func restore(path string) {
	values := map[string]string{}
	if text, err := os.ReadFile(path); err != nil || json.Unmarshal(text, &values) != nil {
		return
	}
	for name, value := range values {
		os.WriteFile("/proc/sys/"+name, []byte(value), 0o644)
	}
	os.Remove(path)
}

const cgroupMount = "/sys/fs/cgroup"

// hierarchies are the cgroup trees of this machine: one for each controller on version 1, a single one on version 2.
func hierarchies() []string {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}
	}
	var found []string
	entries, _ := os.ReadDir(cgroupMount)
	for _, entry := range entries {
		if entry.IsDir() { // and not a link, such as `cpu` to `cpu,cpuacct`, which names a tree twice
			found = append(found, filepath.Join(cgroupMount, entry.Name()))
		}
	}
	return found
}

// makeCgroups makes the root for the pods of each node, which the kubelet expects in every hierarchy.
func makeCgroups(c cluster) error {
	if c.cgroup == "" {
		return nil
	}
	for _, tree := range hierarchies() {
		above := filepath.Join(tree, c.cgroup)
		if err := makeCgroup(above); err != nil {
			return err
		}
		weigh(above)
		for _, n := range c.nodes {
			if err := makeCgroup(filepath.Join(above, n.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeCgroup makes a cgroup that may use all that the one above it may.
func makeCgroup(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	above := filepath.Dir(path)
	// Version 1: a new cpuset is empty and admits no process.
	if strings.HasPrefix(path, filepath.Join(cgroupMount, "cpuset")+"/") {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(above, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(path, file), value, 0o644)
			}
			if err != nil {
				return fmt.Errorf("cgroup: %w", err)
			}
		}
	}
	// Version 2: a tree hands its controllers down only on request.
	if controllers, err := os.ReadFile(filepath.Join(above, "cgroup.controllers")); err == nil {
		for _, at := range []string{above, path} {
			for _, controller := range strings.Fields(string(controllers)) {
				os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
			}
		}
	}
	return nil
}

// weigh gives pods their part of a busy machine. Everything beside them is a process in the cgroup above, each with the weight that all pods
// together would have, while a node gives its pods more than all of its services: a pod with a small request waited seconds for its turn.
func weigh(path string) {
	// Ten times the default in version 1 and 2; a tree that has no such file refuses to make one.
	for file, weight := range map[string]string{"cpu.shares": "10240", "cpu.weight": "1000"} {
		os.WriteFile(filepath.Join(path, file), []byte(weight), 0o644)
	}
}

// removeCgroups removes the root and what is below it. The kernel refuses while the last process is still going, so it tries for a while.
func removeCgroups(name string) {
	if name == "" {
		return
	}
	for _, tree := range hierarchies() {
		deadline := time.Now().Add(5 * time.Second)
		for removeTree(filepath.Join(tree, name)) != nil && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			removeTree(filepath.Join(path, entry.Name()))
		}
	}
	if err := syscall.Rmdir(path); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	return nil
}
