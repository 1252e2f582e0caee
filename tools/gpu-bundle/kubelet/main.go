// Copyright: (c) 2026, the gpufleet.nvidia authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// stand-in-kubelet SECONDS PLUGIN [ARGUMENT ...]
//
// Serves the registration socket of a kubelet, runs a device plugin, and asks it what a kubelet would: options, the devices, and
// an allocation of one, of two and of all of them. Prints one JSON document; ends the plugin, and ends after SECONDS at the latest.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type allocation struct {
	Devices  []string
	Response *api.ContainerAllocateResponse `json:",omitempty"`
	Error    string                         `json:",omitempty"`
}

type resource struct {
	Registration *api.RegisterRequest
	Seconds      float64
	Options      *api.DevicePluginOptions `json:",omitempty"`
	Devices      []*api.Device
	Preferred    []string `json:",omitempty"`
	Allocations  []allocation
	Errors       []string `json:",omitempty"`
}

type kubelet struct {
	api.UnimplementedRegistrationServer
	started time.Time
	lock    sync.Mutex
	found   []*resource
	work    sync.WaitGroup
	heard   chan struct{}
}

func (k *kubelet) Register(_ context.Context, request *api.RegisterRequest) (*api.Empty, error) {
	one := &resource{Registration: request, Seconds: time.Since(k.started).Seconds()}
	k.lock.Lock()
	k.found = append(k.found, one)
	k.lock.Unlock()
	k.work.Add(1)
	go func() {
		defer k.work.Done()
		if err := ask(one); err != nil {
			one.Errors = append(one.Errors, err.Error())
		}
		k.heard <- struct{}{}
	}()
	return &api.Empty{}, nil
}

func ask(one *resource) error {
	path := "unix://" + filepath.Join(api.DevicePluginPath, one.Registration.Endpoint)
	connection, err := grpc.NewClient(path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := api.NewDevicePluginClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if one.Options, err = client.GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
		one.Errors = append(one.Errors, "GetDevicePluginOptions: "+err.Error())
	}
	stream, err := client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		return fmt.Errorf("ListAndWatch: %w", err)
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("ListAndWatch: %w", err)
	}
	one.Devices = first.Devices
	var ids []string
	for _, device := range first.Devices {
		ids = append(ids, device.ID)
	}
	if len(ids) == 0 {
		return nil
	}
	preferred, err := client.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{
		ContainerRequests: []*api.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: ids, AllocationSize: 1}},
	})
	if err != nil {
		one.Errors = append(one.Errors, "GetPreferredAllocation: "+err.Error())
	} else if len(preferred.ContainerResponses) > 0 {
		one.Preferred = preferred.ContainerResponses[0].DeviceIDs
	}
	for _, count := range []int{1, 2, len(ids)} {
		if count <= len(ids) && (count < 3 || count == len(ids)) {
			one.Allocations = append(one.Allocations, allocate(ctx, client, ids[:count]))
		}
	}
	return nil
}

func allocate(ctx context.Context, client api.DevicePluginClient, ids []string) allocation {
	made := allocation{Devices: ids}
	response, err := client.Allocate(ctx, &api.AllocateRequest{
		ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	if err != nil {
		made.Error = err.Error()
	} else if len(response.ContainerResponses) > 0 {
		made.Response = response.ContainerResponses[0]
	}
	return made
}

func run(seconds int, command []string) error {
	if err := os.MkdirAll(api.DevicePluginPath, 0o755); err != nil {
		return err
	}
	os.Remove(api.KubeletSocket)
	listener, err := net.Listen("unix", api.KubeletSocket)
	if err != nil {
		return err
	}
	k := &kubelet{started: time.Now(), heard: make(chan struct{}, 100)}
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, k)
	go server.Serve(listener)
	defer server.Stop()

	plugin := exec.Command(command[0], command[1:]...)
	plugin.Stdout, plugin.Stderr = os.Stderr, os.Stderr
	plugin.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	k.started = time.Now()
	if err := plugin.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- plugin.Wait() }()

	said := "it was ended after it had answered"
	overdue := time.After(time.Duration(seconds) * time.Second)
	var quiet <-chan time.Time
	for waiting := true; waiting; {
		select {
		case <-k.heard:
			// More resources may come: the plugin registers one after the other.
			quiet = time.After(3 * time.Second)
		case <-quiet:
			waiting = false
		case <-overdue:
			said, waiting = fmt.Sprintf("it had not registered in %d s", seconds), false
		case err := <-ended:
			said, waiting = fmt.Sprintf("it ended by itself: %v", err), false
			ended <- err
		}
	}
	plugin.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		plugin.Process.Kill()
	}
	k.lock.Lock()
	defer k.lock.Unlock()
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	return encoder.Encode(map[string]any{"plugin": said, "resources": k.found})
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: stand-in-kubelet SECONDS PLUGIN [ARGUMENT ...]")
		os.Exit(2)
	}
	seconds, err := strconv.Atoi(os.Args[1])
	if err == nil {
		err = run(seconds, os.Args[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stand-in-kubelet:", err)
		os.Exit(1)
	}
}
