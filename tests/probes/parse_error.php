<?php
// Does not parse, on purpose.
echo "never"
}
