# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The value keys that the pinned charts read, as C(tools/chart-keys.py) printed them: a key that is not here is dead.

A chart ignores a key that no template reads, without a word. Two of those stand in the device plugin chart's own values.yaml:
C(gfd.sleepInterval) and C(gfd.noTimestamp).
"""

from __future__ import annotations

_NVIDIA_DEVICE_PLUGIN = """
affinity allowDefaultNamespace cdi.featureFlags cdi.nvidiaHookPath compatWithCPUManager config.default
config.fallbackStrategies config.map config.name deviceDiscoveryStrategy deviceIDStrategy deviceListStrategy
devicePlugin.enableHostNetwork devicePlugin.enabled failOnInitError fullnameOverride gdrcopyEnabled gdsEnabled
gfd.enableHostNetwork gfd.enabled gfd.securityContext image.pullPolicy image.repository image.tag imagePullSecrets
migStrategy mofedEnabled mps.enableHostNetwork mps.enableHostPID mps.root nameOverride namespace namespaceOverride
noTimestamp nodeSelector nvidiaDevRoot nvidiaDriverRoot podAnnotations podSecurityContext priorityClassName resources
runtimeClassName securityContext selectorLabelsOverride sleepInterval tolerations updateStrategy
"""

_GPU_OPERATOR = """
ccManager.args ccManager.defaultMode ccManager.enabled ccManager.env ccManager.hostNetwork ccManager.image
ccManager.imagePullPolicy ccManager.imagePullSecrets ccManager.repository ccManager.resources ccManager.version
cdi.enabled cdi.nriPluginEnabled clusterPolicy.deployCR daemonsets daemonsets.annotations daemonsets.labels
daemonsets.priorityClassName daemonsets.rollingUpdate daemonsets.rollingUpdate.maxUnavailable daemonsets.tolerations
daemonsets.updateStrategy dcgm.args dcgm.enabled dcgm.env dcgm.hostNetwork dcgm.image dcgm.imagePullPolicy
dcgm.imagePullSecrets dcgm.repository dcgm.resources dcgm.version dcgmExporter.annotations dcgmExporter.args
dcgmExporter.config dcgmExporter.config.create dcgmExporter.config.data dcgmExporter.config.name
dcgmExporter.enablePodLabels dcgmExporter.enablePodUID dcgmExporter.enabled dcgmExporter.env dcgmExporter.hostNetwork
dcgmExporter.hostPID dcgmExporter.hpcJobMapping dcgmExporter.image dcgmExporter.imagePullPolicy
dcgmExporter.imagePullSecrets dcgmExporter.podLabelAllowlistRegex dcgmExporter.repository dcgmExporter.resources
dcgmExporter.service dcgmExporter.serviceMonitor dcgmExporter.version devicePlugin.args devicePlugin.config.create
devicePlugin.config.data devicePlugin.config.default devicePlugin.config.name devicePlugin.enabled devicePlugin.env
devicePlugin.hostNetwork devicePlugin.image devicePlugin.imagePullPolicy devicePlugin.imagePullSecrets
devicePlugin.repository devicePlugin.resources devicePlugin.version draDriver.computeDomains.controller
draDriver.computeDomains.enabled draDriver.computeDomains.kubeletPlugin draDriver.featureGates
draDriver.gpus.kubeletPlugin draDriver.image draDriver.imagePullPolicy draDriver.imagePullSecrets draDriver.repository
draDriver.version driver.args driver.certConfig driver.certConfig.name driver.enabled driver.env driver.hostNetwork
driver.image driver.imagePullPolicy driver.imagePullSecrets driver.kernelModuleConfig driver.kernelModuleConfig.name
driver.kernelModuleType driver.licensingConfig driver.licensingConfig.configMapName driver.licensingConfig.nlsEnabled
driver.licensingConfig.secretName driver.livenessProbe driver.manager driver.manager.env driver.manager.image
driver.manager.imagePullPolicy driver.manager.repository driver.manager.version driver.nvidiaDriverCRD.deployDefaultCR
driver.nvidiaDriverCRD.driverType driver.nvidiaDriverCRD.enabled driver.rdma.enabled driver.rdma.useHostMofed
driver.readinessProbe driver.repoConfig driver.repoConfig.configMapName driver.repository driver.resources
driver.secretEnv driver.startupProbe driver.upgradePolicy driver.upgradePolicy.autoUpgrade
driver.upgradePolicy.drain.deleteEmptyDir driver.upgradePolicy.drain.enable driver.upgradePolicy.drain.force
driver.upgradePolicy.drain.podSelector driver.upgradePolicy.drain.timeoutSeconds
driver.upgradePolicy.gpuPodDeletion.deleteEmptyDir driver.upgradePolicy.gpuPodDeletion.force
driver.upgradePolicy.gpuPodDeletion.timeoutSeconds driver.upgradePolicy.maxParallelUpgrades
driver.upgradePolicy.maxUnavailable driver.upgradePolicy.waitForCompletion.podSelector
driver.upgradePolicy.waitForCompletion.timeoutSeconds driver.usePrecompiled driver.version driver.virtualTopology
driver.virtualTopology.config extraObjects fullnameOverride gdrcopy gdrcopy.args gdrcopy.enabled gdrcopy.env
gdrcopy.image gdrcopy.imagePullPolicy gdrcopy.imagePullSecrets gdrcopy.repository gdrcopy.version gds gds.args
gds.enabled gds.env gds.image gds.imagePullPolicy gds.imagePullSecrets gds.repository gds.version gfd.args gfd.enabled
gfd.env gfd.hostNetwork gfd.image gfd.imagePullPolicy gfd.imagePullSecrets gfd.repository gfd.resources gfd.version
gpuCluster.deployCR hostPaths.driverInstallDir hostPaths.kubeletRootDir hostPaths.rootFS kataManager.args
kataManager.config kataManager.enabled kataManager.env kataManager.hostNetwork kataManager.image
kataManager.imagePullPolicy kataManager.imagePullSecrets kataManager.repository kataManager.resources
kataManager.version kataSandboxDevicePlugin.args kataSandboxDevicePlugin.enabled kataSandboxDevicePlugin.env
kataSandboxDevicePlugin.hostNetwork kataSandboxDevicePlugin.image kataSandboxDevicePlugin.imagePullPolicy
kataSandboxDevicePlugin.imagePullSecrets kataSandboxDevicePlugin.repository kataSandboxDevicePlugin.resources
kataSandboxDevicePlugin.version mig.strategy migManager.args migManager.config migManager.config.create
migManager.config.data migManager.config.default migManager.config.name migManager.enabled migManager.env
migManager.gpuClientsConfig migManager.hostNetwork migManager.image migManager.imagePullPolicy
migManager.imagePullSecrets migManager.repository migManager.resources migManager.version nameOverride nfd.enabled
nfd.nodefeaturerules nodeStatusExporter.args nodeStatusExporter.enabled nodeStatusExporter.env
nodeStatusExporter.hostNetwork nodeStatusExporter.image nodeStatusExporter.imagePullPolicy
nodeStatusExporter.imagePullSecrets nodeStatusExporter.repository nodeStatusExporter.resources
nodeStatusExporter.version operator.affinity operator.annotations operator.cleanupCRD operator.defaultGPUMode
operator.env operator.image operator.imagePullPolicy operator.imagePullSecrets operator.labels
operator.logging.develMode operator.logging.level operator.logging.timeEncoding operator.metrics
operator.metrics.serviceMonitor operator.nodeSelector operator.priorityClassName operator.repository
operator.resources operator.runtimeClass operator.tolerations operator.upgradeCRD operator.use_ocp_driver_toolkit
operator.version platform.openshift psa.enabled sandboxDevicePlugin.args sandboxDevicePlugin.enabled
sandboxDevicePlugin.env sandboxDevicePlugin.hostNetwork sandboxDevicePlugin.image sandboxDevicePlugin.imagePullPolicy
sandboxDevicePlugin.imagePullSecrets sandboxDevicePlugin.repository sandboxDevicePlugin.resources
sandboxDevicePlugin.version sandboxWorkloads.defaultWorkload sandboxWorkloads.enabled sandboxWorkloads.mode
toolkit.enabled toolkit.env toolkit.hostNetwork toolkit.image toolkit.imagePullPolicy toolkit.imagePullSecrets
toolkit.installDir toolkit.repository toolkit.resources toolkit.version validator.args validator.cuda
validator.cuda.env validator.driver validator.driver.env validator.env validator.hostNetwork validator.image
validator.imagePullPolicy validator.imagePullSecrets validator.plugin validator.plugin.env validator.repository
validator.resources validator.toolkit validator.toolkit.env validator.version validator.vfioPCI validator.vfioPCI.env
validator.vgpuDevices validator.vgpuDevices.env validator.vgpuManager validator.vgpuManager.env vfioManager.args
vfioManager.driverManager.env vfioManager.driverManager.image vfioManager.driverManager.imagePullPolicy
vfioManager.driverManager.repository vfioManager.driverManager.version vfioManager.enabled vfioManager.env
vfioManager.hostNetwork vfioManager.image vfioManager.imagePullPolicy vfioManager.imagePullSecrets
vfioManager.repository vfioManager.resources vfioManager.version vgpuDeviceManager.args vgpuDeviceManager.config
vgpuDeviceManager.enabled vgpuDeviceManager.env vgpuDeviceManager.hostNetwork vgpuDeviceManager.image
vgpuDeviceManager.imagePullPolicy vgpuDeviceManager.imagePullSecrets vgpuDeviceManager.repository
vgpuDeviceManager.resources vgpuDeviceManager.version vgpuManager.args vgpuManager.driverManager.env
vgpuManager.driverManager.image vgpuManager.driverManager.imagePullPolicy vgpuManager.driverManager.repository
vgpuManager.driverManager.version vgpuManager.enabled vgpuManager.env vgpuManager.hostNetwork vgpuManager.image
vgpuManager.imagePullPolicy vgpuManager.imagePullSecrets vgpuManager.kernelModuleConfig vgpuManager.repository
vgpuManager.resources vgpuManager.version
"""

_NODE_FEATURE_DISCOVERY = """
checksumValuesOnly featureGates fullnameOverride gc.affinity gc.annotations gc.deploymentAnnotations gc.dnsPolicy
gc.enable gc.extraArgs gc.extraEnvs gc.hostNetwork gc.hostUsers gc.initContainers gc.interval gc.labels
gc.livenessProbe.failureThreshold gc.livenessProbe.initialDelaySeconds gc.livenessProbe.periodSeconds
gc.livenessProbe.timeoutSeconds gc.networkPolicy.egress gc.networkPolicy.enabled gc.networkPolicy.ingress
gc.nodeSelector gc.podDisruptionBudget gc.podDisruptionBudget.enable gc.podSecurityContext gc.port gc.rbac.create
gc.readinessProbe.failureThreshold gc.readinessProbe.initialDelaySeconds gc.readinessProbe.periodSeconds
gc.readinessProbe.successThreshold gc.readinessProbe.timeoutSeconds gc.replicaCount gc.resources
gc.revisionHistoryLimit gc.serviceAccount.annotations gc.serviceAccount.create gc.serviceAccount.name gc.tolerations
global global.imagePullSecrets image.pullPolicy image.repository image.tag imagePullSecrets master.affinity
master.annotations master.config master.denyLabelNs master.deploymentAnnotations master.dnsPolicy master.enable
master.enableTaints master.extraArgs master.extraEnvs master.extraLabelNs master.hostNetwork master.hostUsers
master.initContainers master.instance master.labels master.livenessProbe.failureThreshold
master.livenessProbe.initialDelaySeconds master.livenessProbe.periodSeconds master.livenessProbe.timeoutSeconds
master.networkPolicy.egress master.networkPolicy.enabled master.networkPolicy.ingress master.nfdApiParallelism
master.nodeSelector master.podDisruptionBudget master.podDisruptionBudget.enable master.podSecurityContext master.port
master.rbac.create master.readinessProbe.failureThreshold master.readinessProbe.initialDelaySeconds
master.readinessProbe.periodSeconds master.readinessProbe.successThreshold master.readinessProbe.timeoutSeconds
master.replicaCount master.resources master.resyncPeriod master.revisionHistoryLimit master.securityContext
master.serviceAccount.annotations master.serviceAccount.create master.serviceAccount.name
master.startupProbe.failureThreshold master.startupProbe.initialDelaySeconds master.startupProbe.periodSeconds
master.startupProbe.timeoutSeconds master.tolerations nameOverride namespaceOverride postDeleteCleanup
priorityClassName prometheus.enable prometheus.labels prometheus.scrapeInterval topologyUpdater.affinity
topologyUpdater.annotations topologyUpdater.config topologyUpdater.createCRDs topologyUpdater.daemonsetAnnotations
topologyUpdater.dnsPolicy topologyUpdater.enable topologyUpdater.extraArgs topologyUpdater.extraEnvs
topologyUpdater.hostNetwork topologyUpdater.hostUsers topologyUpdater.initContainers topologyUpdater.kubeletConfigPath
topologyUpdater.kubeletPodResourcesSockPath topologyUpdater.kubeletStateDir topologyUpdater.labels
topologyUpdater.livenessProbe.failureThreshold topologyUpdater.livenessProbe.initialDelaySeconds
topologyUpdater.livenessProbe.periodSeconds topologyUpdater.livenessProbe.timeoutSeconds
topologyUpdater.networkPolicy.egress topologyUpdater.networkPolicy.enabled topologyUpdater.networkPolicy.ingress
topologyUpdater.nodeSelector topologyUpdater.podSecurityContext topologyUpdater.podSetFingerprint topologyUpdater.port
topologyUpdater.rbac.create topologyUpdater.readinessProbe.failureThreshold
topologyUpdater.readinessProbe.initialDelaySeconds topologyUpdater.readinessProbe.periodSeconds
topologyUpdater.readinessProbe.successThreshold topologyUpdater.readinessProbe.timeoutSeconds
topologyUpdater.resources topologyUpdater.revisionHistoryLimit topologyUpdater.securityContext
topologyUpdater.serviceAccount.annotations topologyUpdater.serviceAccount.create topologyUpdater.serviceAccount.name
topologyUpdater.tolerations topologyUpdater.updateInterval topologyUpdater.watchNamespace worker.affinity
worker.annotations worker.config worker.daemonsetAnnotations worker.dnsPolicy worker.enable worker.extraArgs
worker.extraEnvs worker.hostNetwork worker.hostUsers worker.initContainers worker.labels
worker.livenessProbe.failureThreshold worker.livenessProbe.initialDelaySeconds worker.livenessProbe.periodSeconds
worker.livenessProbe.timeoutSeconds worker.mountUsrSrc worker.networkPolicy.egress worker.networkPolicy.enabled
worker.networkPolicy.ingress worker.nodeSelector worker.ownerRefs worker.podSecurityContext worker.port
worker.priorityClassName worker.rbac.create worker.readinessProbe.failureThreshold
worker.readinessProbe.initialDelaySeconds worker.readinessProbe.periodSeconds worker.readinessProbe.successThreshold
worker.readinessProbe.timeoutSeconds worker.resources worker.revisionHistoryLimit worker.securityContext
worker.serviceAccount.annotations worker.serviceAccount.create worker.serviceAccount.name worker.tolerations
worker.updateStrategy
"""

_DCGM_EXPORTER = """
affinity arguments basicAuth.users customMetrics debugDump.compression debugDump.directory debugDump.enabled
debugDump.retention extraConfigMapVolumes extraEnv extraHostVolumes extraVolumeMounts fullnameOverride hostNetwork
hostPID image.pullPolicy image.repository image.tag imagePullSecrets initContainers kubeletPath
kubernetes.enablePodLabels kubernetes.enablePodUID kubernetes.podLabelAllowlistRegex kubernetes.rbac.create
kubernetesDRA.enabled livenessProbe.initialDelaySeconds livenessProbe.periodSeconds nameOverride namespaceOverride
nodeSelector podAnnotations podLabels podSecurityContext priorityClassName readinessProbe.initialDelaySeconds
resources rollingUpdate runtimeClassName securityContext service.address service.annotations service.clusterIP
service.enable service.internalTrafficPolicy service.port service.type serviceAccount.annotations
serviceAccount.create serviceAccount.name serviceMonitor.additionalLabels serviceMonitor.apiVersion
serviceMonitor.enabled serviceMonitor.honorLabels serviceMonitor.interval serviceMonitor.metricRelabelings
serviceMonitor.relabelings serviceMonitor.scrapeTimeout tlsServerConfig.autoGenerated tlsServerConfig.ca
tlsServerConfig.caFilename tlsServerConfig.cert tlsServerConfig.certFilename tlsServerConfig.clientAuthType
tlsServerConfig.enabled tlsServerConfig.existingSecret tlsServerConfig.key tlsServerConfig.keyFilename tolerations
"""

_HAMI = """
birenResourceName dcuResourceCores dcuResourceMem dcuResourceName device-config device-config.content
devicePlugin.createRuntimeClass devicePlugin.deviceCoreScaling devicePlugin.deviceListStrategy
devicePlugin.deviceMemoryScaling devicePlugin.deviceSplitCount devicePlugin.disablecorelimit
devicePlugin.enableNumaTopology devicePlugin.enabled devicePlugin.extraArgs devicePlugin.extraEnvs
devicePlugin.gdrcopyEnabled devicePlugin.gdsEnabled devicePlugin.gpuOperatorToolkitReady.enabled
devicePlugin.gpuOperatorToolkitReady.hostPath devicePlugin.gpuOperatorToolkitReady.securityContext
devicePlugin.hostNetwork devicePlugin.hostPID devicePlugin.image devicePlugin.image.pullPolicy devicePlugin.libPath
devicePlugin.migStrategy devicePlugin.mofedEnabled devicePlugin.monitor.ctrPath devicePlugin.monitor.extraArgs
devicePlugin.monitor.extraEnvs devicePlugin.monitor.image devicePlugin.monitor.image.pullPolicy
devicePlugin.monitor.resources devicePlugin.monitor.resyncInterval devicePlugin.monitor.securityContext
devicePlugin.nodeConfiguration.config devicePlugin.nodeConfiguration.externalConfigName devicePlugin.nvidiaDriverRoot
devicePlugin.nvidiaHookPath devicePlugin.nvidiaNodeSelector devicePlugin.passDeviceSpecsEnabled
devicePlugin.pluginPath devicePlugin.podAnnotations devicePlugin.preConfiguredDeviceMemory devicePlugin.resources
devicePlugin.runtimeClassName devicePlugin.securityContext devicePlugin.service.annotations
devicePlugin.service.httpPort devicePlugin.service.labels devicePlugin.service.type devicePlugin.tolerations
devicePlugin.updateStrategy devices.amd.customresources devices.ascend.customresources devices.ascend.enabled
devices.ascend.hamiVnpuCore devices.ascend.runtimeClassName devices.awsneuron.customresources
devices.biren.customresources devices.biren.enabled devices.enflame.customresources devices.enflame.enabled
devices.iluvatar.customresources devices.iluvatar.enabled devices.kunlun.customresources devices.kunlun.enabled
devices.mthreads.customresources devices.mthreads.enabled devices.nvidia.gpuCorePolicy devices.nvidia.libCudaLogLevel
devices.vastai.customresources devices.vastai.enabled enflameResourceNameDRSGCU enflameResourceNameGCUCore
enflameResourceNameGCUMemory fullnameOverride global global.annotations global.gpuHookPath global.labels
global.managedNodeSelector global.managedNodeSelectorEnable kunlunResourceName kunlunResourceVCountName
kunlunResourceVMemoryName legacyMetrics metaxResourceCore metaxResourceMem metaxResourceName metaxsGPUTopologyAware
mluResourceCores mluResourceMem mluResourceName mockDevicePlugin.enabled mockDevicePlugin.image
mockDevicePlugin.image.pullPolicy mockDevicePlugin.tag nameOverride namespaceOverride path.to.the.image
path.to.the.image1 path.to.the.image2 podSecurityPolicy.enabled prometheus.enabled resourceCores resourceMem
resourceMemPercentage resourceName resourcePriority scheduler.admissionWebhook
scheduler.admissionWebhook.customURL.enabled scheduler.admissionWebhook.customURL.host
scheduler.admissionWebhook.customURL.path scheduler.admissionWebhook.customURL.port scheduler.admissionWebhook.enabled
scheduler.admissionWebhook.failurePolicy scheduler.admissionWebhook.manageNamespaceSelector
scheduler.admissionWebhook.namespaceSelector.matchExpressions scheduler.admissionWebhook.namespaceSelector.matchLabels
scheduler.admissionWebhook.objectSelector.matchExpressions scheduler.admissionWebhook.objectSelector.matchLabels
scheduler.admissionWebhook.reinvocationPolicy scheduler.admissionWebhook.whitelistNamespaces
scheduler.certManager.enabled scheduler.defaultSchedulerPolicy.gpuSchedulerPolicy
scheduler.defaultSchedulerPolicy.nodeSchedulerPolicy scheduler.extender.extraArgs scheduler.extender.image
scheduler.extender.image.pullPolicy scheduler.extender.resources scheduler.forceOverwriteDefaultScheduler
scheduler.kubeScheduler.enabled scheduler.kubeScheduler.extraArgs scheduler.kubeScheduler.extraNewArgs
scheduler.kubeScheduler.image scheduler.kubeScheduler.image.pullPolicy scheduler.kubeScheduler.image.tag
scheduler.kubeScheduler.resources scheduler.leaderElect scheduler.livenessProbe scheduler.metricsBindAddress
scheduler.nodeLabelSelector scheduler.nodeLockExpire scheduler.nodeName scheduler.nodeSelector scheduler.overwriteEnv
scheduler.patch.enabled scheduler.patch.image scheduler.patch.image.pullPolicy scheduler.patch.imageNew
scheduler.patch.imageNew.pullPolicy scheduler.patch.nodeSelector scheduler.patch.podAnnotations
scheduler.patch.priorityClassName scheduler.patch.runAsUser scheduler.patch.tolerations scheduler.podAnnotations
scheduler.replicas scheduler.service.annotations scheduler.service.httpPort scheduler.service.httpTargetPort
scheduler.service.labels scheduler.service.monitorPort scheduler.service.monitorTargetPort
scheduler.service.schedulerPort scheduler.service.type scheduler.tolerations schedulerName vastaiResourceName
"""

_DRA_DRIVER = """
allowDefaultNamespace altProcDevices consumableShares controller.affinity controller.containers.computeDomain.env
controller.containers.computeDomain.resources controller.containers.computeDomain.securityContext
controller.leaderElection.enabled controller.leaderElection.leaseDuration controller.leaderElection.renewDeadline
controller.leaderElection.retryPeriod controller.metrics.enabled controller.metrics.httpEndpoint
controller.metrics.metricsPath controller.metrics.profilePath controller.networkPolicy.enabled controller.nodeSelector
controller.podAnnotations controller.podSecurityContext controller.priorityClassName controller.replicas
controller.tolerations featureGates featureGates.HostManagedIMEXDaemon featureGates.MPSSupport
featureGates.PassthroughSupport fullnameOverride gpuResourcesEnabledOverride image.pullPolicy image.repository
image.tag imagePullSecrets kubeletPlugin.affinity kubeletPlugin.containers.computeDomains.env
kubeletPlugin.containers.computeDomains.gpuCliqueLabelEnabled kubeletPlugin.containers.computeDomains.healthcheckPort
kubeletPlugin.containers.computeDomains.resources kubeletPlugin.containers.computeDomains.securityContext
kubeletPlugin.containers.gpus.env kubeletPlugin.containers.gpus.healthcheckPort
kubeletPlugin.containers.gpus.resources kubeletPlugin.containers.gpus.securityContext
kubeletPlugin.kubeletPluginsDirectoryPath kubeletPlugin.kubeletRegistrarDirectoryPath
kubeletPlugin.metrics.computeDomainHttpEndpoint kubeletPlugin.metrics.enabled kubeletPlugin.metrics.gpuHttpEndpoint
kubeletPlugin.metrics.metricsPath kubeletPlugin.networkPolicy.enabled kubeletPlugin.nodeSelector
kubeletPlugin.podAnnotations kubeletPlugin.podSecurityContext kubeletPlugin.priorityClassName
kubeletPlugin.tolerations kubeletPlugin.updateStrategy logVerbosity maskNvidiaDriverParams nameOverride namespace
namespaceOverride nvidiaCDIHookPath nvidiaCtkPath nvidiaDriverRoot resourceApiVersion resources.computeDomains.enabled
resources.computeDomains.imex resources.computeDomains.imex.hostSocketPath resources.computeDomains.imex.isolation
resources.computeDomains.imex.mode resources.gpus.enabled selectorLabelsOverride serviceAccount.annotations
serviceAccount.create serviceAccount.name webhook.affinity webhook.containerPort webhook.containers.webhook.resources
webhook.containers.webhook.securityContext webhook.enabled webhook.failurePolicy webhook.nodeSelector
webhook.podAnnotations webhook.podSecurityContext webhook.priorityClassName webhook.replicas
webhook.serviceAccount.annotations webhook.serviceAccount.create webhook.serviceAccount.name webhook.servicePort
webhook.tls webhook.tls.certManager webhook.tls.certManager.dnsNames webhook.tls.certManager.issuerName
webhook.tls.certManager.issuerType webhook.tls.mode webhook.tls.secret webhook.tls.secret.caBundle
webhook.tls.secret.name webhook.tolerations
"""

# Values of a subchart stand under its name, and its condition is read by Helm itself.
_SUBCHARTS = {
    "nvidia-device-plugin": ("nfd.enabled", ["nfd." + key for key in _NODE_FEATURE_DISCOVERY.split()]),
    "gpu-operator": ("nfd.enabled", ["node-feature-discovery." + key for key in _NODE_FEATURE_DISCOVERY.split()]),
}

_TEXTS = {
    "nvidia-device-plugin": _NVIDIA_DEVICE_PLUGIN,
    "gpu-operator": _GPU_OPERATOR,
    "node-feature-discovery": _NODE_FEATURE_DISCOVERY,
    "dcgm-exporter": _DCGM_EXPORTER,
    "hami": _HAMI,
    "dra-driver-nvidia-gpu": _DRA_DRIVER,
}

#: Chart to the paths that its templates read; everything below such a path is passed on.
KEYS: dict[str, frozenset[str]] = {
    chart: frozenset(text.split())
    | {path for part in _SUBCHARTS.get(chart, ()) for path in ([part] if isinstance(part, str) else part)}
    for chart, text in _TEXTS.items()
}
