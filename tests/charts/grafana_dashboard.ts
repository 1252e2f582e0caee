// Copyright: (c) 2026, the gpufleet.nvidia authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// A dashboard of Prometheus queries, put together from the types that Grafana publishes. Grafana's own type of a dashboard leaves open what a panel's
// options, its custom field configuration and its queries are, because every plugin has its own: here each panel has those of its plugin.

import type * as grafana from "@grafana/schema";
import type * as stat from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type * as table from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import type * as timeseries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";
import type { PrometheusQuery } from "./prometheus_query";

// Enumerations as the texts that JSON has.
type Json<T> = T extends string ? `${T}` : T extends (infer Item)[] ? Json<Item>[] : T extends object ? { [Key in keyof T]: Json<T[Key]> } : T;

type DataSource = grafana.DataSourceRef & { type: "prometheus"; uid: string };
type FieldConfig<Custom> = Omit<grafana.FieldConfig, "custom"> & { custom?: Partial<Custom> };
// What a panel's plugin has a default for may be left out.
interface Panel<Type extends string, Options, Custom> extends Omit<grafana.Panel, "type" | "options" | "fieldConfig" | "targets" | "datasource"> {
    type: Type;
    title: string;
    datasource: DataSource;
    options?: Partial<Options>;
    fieldConfig?: Omit<grafana.FieldConfigSource, "defaults"> & { defaults: FieldConfig<Custom> };
    targets: (Omit<PrometheusQuery, "datasource"> & { datasource: DataSource })[];
}
type AnyPanel =
    | Panel<"stat", stat.Options, Record<string, never>>
    | Panel<"table", table.Options, table.FieldConfig>
    | Panel<"timeseries", timeseries.Options, timeseries.FieldConfig>;

interface DataSourceVariable extends Omit<grafana.VariableModel, "type" | "query"> {
    type: "datasource";
    query: "prometheus";
}
// Of a variable Grafana's schema leaves open the query; this is StandardPromVariableQuery of its Prometheus plugin.
interface QueryVariable extends Omit<grafana.VariableModel, "type" | "query" | "datasource"> {
    type: "query";
    datasource: DataSource;
    query: { query: string; refId: string };
}

export type Dashboard = Json<
    Omit<grafana.Dashboard, "panels" | "templating"> & {
        panels: AnyPanel[];
        templating: { list: (DataSourceVariable | QueryVariable)[] };
    }
>;
