package main

import (
	"context"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components are the parts of Kubernetes. Each runs in a process of its own, so that feature gates, flags and metric
// registries do not meet, and a test can stop one.
var components = map[string]func() error{
	"etcd":                    etcd,
	"coredns":                 coredns,
	"kube-apiserver":          func() error { return run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() error { return run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() error { return run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() error { return run(kubelet.NewKubeletCommand(context.Background())) },
	"kube-proxy":              func() error { return run(proxy.NewProxyCommand()) },
}

func run(command *cobra.Command) error {
	os.Exit(cli.Run(command))
	return nil
}

func coredns() error {
	dnsserver.Directives = []string{"bind", "errors", "ready", "cache", "kubernetes"}
	coremain.Run()
	return nil
}

// etcd DIRECTORY URL serves a single member until it is told to stop. It does not sync to disk: for tests only.
func etcd() error {
	address, err := url.Parse(os.Args[2])
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.UnsafeNoFsync = os.Args[1], "warn", true
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*address}, []url.URL{*address}
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
		server.Close()
		return nil
	case err := <-server.Err():
		return err
	}
}
