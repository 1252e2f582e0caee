// Copyright: (c) 2026, the gpufleet.nvidia authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// What the DRA driver says to the parameters of claims: reads a JSON list of them, and prints the reason of each, empty for good ones.
// The gates are those of its environment, as in its chart.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	configapi "sigs.k8s.io/dra-driver-nvidia-gpu/api/nvidia.com/resource/v1beta1"
	"sigs.k8s.io/dra-driver-nvidia-gpu/pkg/featuregates"
)

func verdict(text []byte) (said string) {
	defer func() {
		if problem := recover(); problem != nil {
			said = fmt.Sprintf("panic: %v", problem)
		}
	}()
	object, _, err := configapi.StrictDecoder.Decode(text, nil, nil)
	if err != nil {
		return err.Error()
	}
	config, known := object.(configapi.Interface)
	if !known {
		return "not a configuration of a device"
	}
	if err := config.Normalize(); err != nil {
		return err.Error()
	}
	if err := config.Validate(); err != nil {
		return err.Error()
	}
	// What it reads of a good one, in applySharingConfig.
	if gpu, of := config.(*configapi.GpuConfig); of && gpu.Sharing.IsTimeSlicing() {
		_, err = gpu.Sharing.GetTimeSlicingConfig()
	} else if of && gpu.Sharing.IsMps() {
		_, err = gpu.Sharing.GetMpsConfig()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func main() {
	var given []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		panic(err)
	}
	if err := featuregates.FeatureGates().Set(os.Getenv("FEATURE_GATES")); err != nil {
		panic(err)
	}
	said := []string{}
	for _, one := range given {
		said = append(said, verdict(one))
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		panic(err)
	}
}
