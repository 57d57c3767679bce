<?php

require __DIR__ . '/../src/Ranges.php';
