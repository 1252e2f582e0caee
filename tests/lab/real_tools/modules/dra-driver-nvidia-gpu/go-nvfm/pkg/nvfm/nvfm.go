// Copyright: (c) 2026, the gpufleet.nvidia authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package nvfm stands in for NVIDIA's bindings of the fabric manager's library, which the Go module proxy does not give. It has the names that
// the DRA driver 0.5.0 uses (pkg/fabricmanager/client_nvfm.go), and every call fails as on a host without libnvfm.so, which lab hosts are.
package nvfm

// Return is what a call of the library returns.
type Return int

const (
	SUCCESS  Return = 0
	notFound Return = -1
)

func (r Return) String() string {
	if r == SUCCESS {
		return "SUCCESS"
	}
	return "libnvfm.so is not installed"
}

type (
	FabricPartitionId uint32
	LibraryOption     func()
	ConnectOption     func()
)

type FabricPartitionGpuInfo struct {
	PhysicalId          uint32
	Uuid                [80]int8
	PciBusId            [32]int8
	NumNvLinksAvailable uint32
	MaxNumNvLinks       uint32
	NvlinkLineRateMBps  uint32
}

type FabricPartitionInfo struct {
	PartitionId FabricPartitionId
	IsActive    uint32
	NumGpus     uint32
	GpuInfo     [16]FabricPartitionGpuInfo
}

type FabricPartitionList struct {
	NumPartitions uint32
	PartitionInfo [64]FabricPartitionInfo
}

type Handle interface {
	Disconnect() Return
	GetSupportedFabricPartitions() (FabricPartitionList, Return)
	ActivateFabricPartition(FabricPartitionId) Return
	DeactivateFabricPartition(FabricPartitionId) Return
}

type Interface interface {
	Init() Return
	Shutdown() Return
	Connect(...ConnectOption) (Handle, Return)
}

type absent struct{}

func New(...LibraryOption) Interface { return absent{} }

func WithLibraryPath(string) LibraryOption { return func() {} }
func WithUnixSocket(string) ConnectOption  { return func() {} }
func WithAddress(string) ConnectOption     { return func() {} }
func WithTimeoutMs(uint32) ConnectOption   { return func() {} }

func (absent) Init() Return                              { return notFound }
func (absent) Shutdown() Return                          { return SUCCESS }
func (absent) Connect(...ConnectOption) (Handle, Return) { return nil, notFound }
