// One of each kind of data as the Rust structs give it: a test of crates/report writes it and
// compares. What does not fit data.ts does not compile.
import type { LadderData, LanesData, Measure, SeriesData, SweepData } from "./data";
export const cdf0: Measure[] = [
  {
    "about": "name",
    "curves": [
      {
        "count": 18700,
        "ladder": {
          "intervals": [
            [
              14400,
              16900
            ],
            [
              2340900,
              2592100
            ],
            [
              7728400,
              8008900
            ],
            [
              8820900,
              8880400
            ],
            [
              8940100,
              null
            ]
          ],
          "max": 8940100,
          "p50": 16900,
          "p90": 2464900,
          "p99": 7896100,
          "p999": 8880400,
          "p9999": 8940100
        },
        "longer": [
          0.83957,
          0.75936,
          0.70588,
          0.66578,
          0.63369
        ],
        "name": "name",
        "ns": [
          100,
          400,
          900,
          1600,
          2500
        ],
        "style": 0
      },
      {
        "count": 18700,
        "ladder": {
          "intervals": [
            [
              17280,
              20280
            ],
            [
              2809080,
              3110520
            ],
            [
              9274080,
              9610680
            ],
            [
              10585080,
              10656480
            ],
            [
              10728120,
              null
            ]
          ],
          "max": 10728120,
          "p50": 20280,
          "p90": 2957880,
          "p99": 9475320,
          "p999": 10656480,
          "p9999": 10728120
        },
        "longer": [
          0.83957,
          0.75936,
          0.70588,
          0.66578,
          0.63369
        ],
        "name": "name",
        "ns": [
          120,
          480,
          1080,
          1920,
          3000
        ],
        "style": 1
      },
      {
        "count": 18700,
        "ladder": {
          "intervals": [
            [
              129600,
              152100
            ],
            [
              21068100,
              23328900
            ],
            [
              69555600,
              72080100
            ],
            [
              79388100,
              79923600
            ],
            [
              80460900,
              null
            ]
          ],
          "max": 80460900,
          "p50": 152100,
          "p90": 22184100,
          "p99": 71064900,
          "p999": 79923600,
          "p9999": 80460900
        },
        "longer": [
          0.83957,
          0.75936,
          0.70588,
          0.66578,
          0.63369
        ],
        "name": "name",
        "ns": [
          900,
          3600,
          8100,
          14400,
          22500
        ],
        "style": 2
      }
    ],
    "name": "name"
  },
  {
    "about": "name",
    "curves": [
      {
        "count": 18700,
        "ladder": {
          "intervals": [
            [
              14400,
              16900
            ],
            [
              2340900,
              2592100
            ],
            [
              7728400,
              8008900
            ],
            [
              8820900,
              8880400
            ],
            [
              8940100,
              null
            ]
          ],
          "max": 8940100,
          "p50": 16900,
          "p90": 2464900,
          "p99": 7896100,
          "p999": 8880400,
          "p9999": 8940100
        },
        "longer": [
          0.83957,
          0.75936,
          0.70588,
          0.66578,
          0.63369
        ],
        "name": "name",
        "ns": [
          100,
          400,
          900,
          1600,
          2500
        ],
        "style": 0
      },
      {
        "count": 18700,
        "ladder": {
          "intervals": [
            [
              17280,
              20280
            ],
            [
              2809080,
              3110520
            ],
            [
              9274080,
              9610680
            ],
            [
              10585080,
              10656480
            ],
            [
              10728120,
              null
            ]
          ],
          "max": 10728120,
          "p50": 20280,
          "p90": 2957880,
          "p99": 9475320,
          "p999": 10656480,
          "p9999": 10728120
        },
        "longer": [
          0.83957,
          0.75936,
          0.70588,
          0.66578,
          0.63369
        ],
        "name": "name",
        "ns": [
          120,
          480,
          1080,
          1920,
          3000
        ],
        "style": 1
      },
      {
        "count": 18700,
        "ladder": {
          "intervals": [
            [
              129600,
              152100
            ],
            [
              21068100,
              23328900
            ],
            [
              69555600,
              72080100
            ],
            [
              79388100,
              79923600
            ],
            [
              80460900,
              null
            ]
          ],
          "max": 80460900,
          "p50": 152100,
          "p90": 22184100,
          "p99": 71064900,
          "p999": 79923600,
          "p9999": 80460900
        },
        "longer": [
          0.83957,
          0.75936,
          0.70588,
          0.66578,
          0.63369
        ],
        "name": "name",
        "ns": [
          900,
          3600,
          8100,
          14400,
          22500
        ],
        "style": 2
      }
    ],
    "name": "Response"
  }
];
export const series0: SeriesData = {
  "about": "name",
  "from_ns": 0,
  "step_ns": 1000000,
  "title": "name",
  "traces": [
    {
      "name": "name",
      "style": 1,
      "values": [
        0.0,
        1.0,
        2.0,
        3.0,
        4.0
      ]
    }
  ],
  "unit": "name"
};
export const sweep0: SweepData = {
  "lines": [
    {
      "at": [
        2000000.0,
        1000000.0,
        500000.0,
        null
      ],
      "between": [
        [
          1000000.0,
          3000000.0
        ],
        [
          800000.0,
          2000000.0
        ],
        null,
        null
      ],
      "name": "name",
      "scale": "time",
      "text": [
        "2.00 ms",
        "1.00 ms (−50 %, better)",
        "500 µs",
        "no value"
      ]
    }
  ],
  "values": [
    "0",
    "5",
    "10",
    "name"
  ],
  "what": "name"
};
export const ladder0: LadderData = {
  "curves": [
    {
      "between": [
        [
          14400,
          16900
        ],
        [
          2340900,
          2592100
        ],
        [
          7728400,
          8008900
        ],
        [
          8820900,
          8880400
        ],
        [
          null,
          null
        ]
      ],
      "name": "name",
      "ns": [
        16900,
        2464900,
        7896100,
        8880400,
        8940100
      ],
      "style": 0
    },
    {
      "between": [
        [
          17280,
          20280
        ],
        [
          2809080,
          3110520
        ],
        [
          9274080,
          9610680
        ],
        [
          10585080,
          10656480
        ],
        [
          null,
          null
        ]
      ],
      "name": "name",
      "ns": [
        20280,
        2957880,
        9475320,
        10656480,
        10728120
      ],
      "style": 1
    },
    {
      "between": [
        [
          129600,
          152100
        ],
        [
          21068100,
          23328900
        ],
        [
          69555600,
          72080100
        ],
        [
          79388100,
          79923600
        ],
        [
          null,
          null
        ]
      ],
      "name": "name",
      "ns": [
        152100,
        22184100,
        71064900,
        79923600,
        80460900
      ],
      "style": 2
    }
  ],
  "rungs": [
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max"
  ]
};
export const lanes0: LanesData = {
  "own": [
    2
  ],
  "runs": [
    {
      "cpus": 2,
      "data": "?UpeL!ax+6XZ_FQk$)US[(}=@Cf=v+Vv_QgIf!]M9Kdz8NS7jngyavy?i+(Szs*CGK@#liA4FV1Y_kOei*^:l5tke+HGIELzO8PL[Zu{*pyqk^LsU[kHFkA_HX7X|I9w%!!MYm;GZJwh^[Qx*zfaRoKWGe{p6k3Lhh^+v00",
      "events": 500,
      "from_ns": 0,
      "name": "recorded",
      "style": 0,
      "to_ns": 16000000,
      "unmarked": 0,
      "whole_ns": 16000000
    },
    {
      "cpus": 2,
      "data": "?N,f3!axi=^*Hr:=B0mwNc3sxvH|%@pim%X2O7peVg*8)h77=tZzzx^q9_?}lXZV+^5J#?k)M9__ZtliXJA^Oh%pAM]_DCgY-?7J;dF0%Gi{o|P,d=fP5QE0FEa(e9P6D.c+G,f^5ifc3-)?mq(rFwopDwOR7K!#@qb,nZ9Z+3_h+5L.dNsduVX}O8v",
      "events": 500,
      "from_ns": 0,
      "name": "name",
      "style": 1,
      "to_ns": 12000000,
      "unmarked": 0,
      "whole_ns": 12000000
    }
  ],
  "tasks": [
    [
      "name",
      "name"
    ],
    [
      "client",
      "client"
    ],
    [
      "server",
      "server"
    ]
  ]
};
export const lanes1: LanesData = {
  "own": [
    2
  ],
  "runs": [
    {
      "cpus": 1,
      "data": "V]?7p00",
      "events": 0,
      "focus_ns": [
        10,
        20
      ],
      "from_ns": 5,
      "incident": {
        "from_ns": 12,
        "text": "redis waited",
        "to_ns": 15
      },
      "name": "recorded",
      "rows": [
        "pCPU 0"
      ],
      "style": 0,
      "to_ns": 100,
      "unmarked": 0,
      "whole_ns": 100
    }
  ],
  "tasks": [
    [
      "a",
      "a"
    ],
    [
      "b",
      "b"
    ],
    [
      "c",
      "c"
    ]
  ]
};
